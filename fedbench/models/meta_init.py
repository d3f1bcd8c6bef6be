"""Models as mere shapes: on the meta device, where no weight has a value, and none is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

_DRAWS = {getattr(init, name) for name in ("kaiming_uniform_", "kaiming_normal_", "uniform_", "normal_", "constant_")}
# Of these timm makes draws of its own. Some of them are Python on the meta device, which torch's compiler comes with.
_DRAWS |= {getattr(Tensor, name) for name in ("uniform_", "normal_", "erfinv_", "mul_", "add_", "clamp_")}


class _Undrawn(TorchFunctionMode):
    """Leaves a tensor of the meta device as it is where it would be initialised, which takes torch longer there than
    with values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DRAWS:
            tensor: Tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Build what is built in here on the meta device."""
    with torch.device("meta"), _Undrawn():
        yield
