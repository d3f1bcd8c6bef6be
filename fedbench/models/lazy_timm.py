"""timm, and torch's counter of FLOPs, imported without torch's compilers: those take four times as long as timm itself,
and 200 MB of memory, and nothing here compiles.

What pulls them in, by torch 2.15, timm 1.0.31 and torchvision 0.29: `torch.compiler.disable`, as which timm marks a few
functions; a question that torchvision puts when one of its operators is called; and the counter's, whether what is
called is a kernel of triton's. All three are put off until there is a call, or a kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

COMPILER, KERNELS = "torch._dynamo", "triton"


class _Later(ModuleType):
    """Stands for a module while others import names from it; what is not put off is taken from the module itself, which
    is imported then."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _give_way()
        return getattr(import_module(self.__name__), name)


class _Kernels(type):
    """Of a class whose instances are triton's own."""

    def __instancecheck__(cls, one: Any) -> bool:
        real = sys.modules.get("triton.runtime.jit")  # where it is not imported, there are none
        return real is not None and not isinstance(real, _Later) and isinstance(one, real.JITFunction)


class _Kernel(metaclass=_Kernels):
    pass


@contextmanager
def compilers_later() -> Iterator[None]:
    """Inside, modules are imported that do not need the compilers yet. One that is there already stays as it is."""
    later: dict[str, dict[str, Any]] = {
        COMPILER: {"disable": _disabled_later},
        f"{COMPILER}.utils": {"is_compile_supported": _is_compile_supported},
        KERNELS: {},
        f"{KERNELS}.runtime": {},
        f"{KERNELS}.runtime.jit": {"JITFunction": _Kernel},
    }
    for root in (COMPILER, KERNELS):
        if root not in sys.modules and (found := find_spec(root)):
            for name in filter(lambda name: name.startswith(root), later):
                sys.modules[name] = made = _Later(name)
                made.__path__ = list(found.submodule_search_locations or ())
                vars(made).update(later[name])
    try:
        yield
    finally:
        _give_way()


def _give_way() -> None:
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Later)]:
        del sys.modules[name]


def _disabled_later(function: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    """`torch.compiler.disable` of a function, as torch marks its own: at the first call."""
    later: Callable[..., Any] = torch._disable_dynamo(function, recursive)
    return later


def _is_compile_supported(device: str) -> bool:
    """torch's answer, asked for when it is needed."""
    return bool(import_module(f"{COMPILER}.utils").is_compile_supported(device))


with compilers_later():
    import timm
    from timm.layers import Mlp
    from timm.models.vision_transformer import Attention, Block
    from torch.utils.flop_counter import flop_registry

__all__ = [
    "Attention",
    "Block",
    "Mlp",
    "compilers_later",
    "flop_registry",
    "timm",
]
