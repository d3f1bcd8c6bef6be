"""timm comes without torch's compilers, and they are there for whoever asks."""

import subprocess
import sys

from fedbench.models import lazy_timm

ALONE = """
import sys
from fedbench.models.lazy_timm import timm
from fedbench_plugins.backbones.micro import architecture
from fedbench.models.meta_init import shapes_alone

with shapes_alone():
    model = architecture("micro_vit")
from torch.utils.flop_counter import _JITFunction
assert type(model) is timm.models.VisionTransformer and not isinstance(print, _JITFunction)
print([name for name in ("torch._dynamo", "triton", "sympy") if name in sys.modules])
"""


def test_no_compiler_is_imported_with_timm_nor_with_shapes():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


def test_what_is_not_put_off_is_the_module_s_own(monkeypatch):
    """A small package in the compiler's place."""
    for name in [name for name in sys.modules if name.startswith("wsgiref")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(lazy_timm, "COMPILER", "wsgiref")
    with lazy_timm.compilers_later():
        from wsgiref import disable

        assert disable is lazy_timm._disabled_later
        assert type(sys.modules["wsgiref"]) is lazy_timm._Later
        from wsgiref.utils import is_compile_supported

        assert is_compile_supported is lazy_timm._is_compile_supported
        from wsgiref import __doc__ as told
        from wsgiref import headers

        assert headers.Headers and told != lazy_timm._Later.__doc__
    import wsgiref

    assert type(wsgiref) is not lazy_timm._Later and "wsgiref.utils" not in sys.modules


def test_a_function_that_is_not_to_be_compiled_is_called_all_the_same():
    assert lazy_timm._disabled_later(lambda x: x + 1, reason="a test")(1) == 2
    assert lazy_timm._is_compile_supported("cpu") in (True, False)
