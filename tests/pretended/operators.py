"""Every operator below Python's calls, those of a backward pass too: sides do not mix, results lie where inputs do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pretended.device import Gpu
from pretended.rules import tensors

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense,
    aten._unique,
    aten._unique2,
    aten.bincount,
    aten.equal,
    aten.masked_select,
    aten.nonzero,
    aten.unique_consecutive,
    aten.unique_dim,
}
COPIES = {aten.copy_, aten._foreach_copy_}
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
ALL_TENSORS = {aten.cat, aten.stack}  # take no number of the CPU beside tensors of the GPU


class Operators(TorchDispatchMode):
    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Mapping | None = None) -> Any:
        gpu, kwargs = self.gpu, dict(kwargs or {})
        with torch._C.DisableTorchFunction():
            given = tensors((args, kwargs))
            there = [gpu.holds(x) for x in given]
            onto = any(there) if gpu.onto is None else gpu.onto
            self._check(func, args, kwargs, given, there)
            return self._marked(func(*args, **kwargs), given, onto)

    def _marked(self, out: Any, given: list[Tensor], onto: bool) -> Any:
        """What is new in a result, on its side."""
        if onto:
            old = {x.untyped_storage()._cdata for x in given if x.is_cpu}
            for x in tensors((out,)):
                if x.is_cpu and x.untyped_storage()._cdata not in old:
                    self.gpu.take(x)
        return out

    def _check(self, func: Any, args: tuple, kwargs: Mapping, given: list[Tensor], there: list[bool]) -> None:
        """Raises RuntimeError where tensors of both sides meet; counts where the CPU waits."""
        if not any(there):
            return
        kind = func.overloadpacket
        here = [x for x, on in zip(given, there, strict=True) if not on and x.is_cpu]
        if kind in COPIES:
            if here and not (args[2] if len(args) > 2 else kwargs.get("non_blocking")):
                self.gpu.wait("a copy between both sides")
        elif kind in INDEXED:
            self._check_index(args, kwargs)
        elif any(x.dim() or kind in ALL_TENSORS for x in here):  # numbers of the CPU may stand beside elements
            shapes = ", ".join(str(tuple(x.shape)) for x in here)
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"({func}; on the CPU: {shapes})"
            )
        if kind in WAITING or func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
            self.gpu.wait(str(func))

    def _check_index(self, args: tuple, kwargs: Mapping) -> None:
        target, *values = (args[0], *tensors(args[2:3]))
        indices = [x for x in args[1] if x is not None]
        on = self.gpu.holds
        if not on(target) and any(on(x) for x in (*indices, *values)):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        if any(not on(x) and x.dim() for x in values):
            raise RuntimeError("Expected all tensors to be on the same device: values on cpu, put in on cuda:0")
        if any(not on(x) for x in indices):
            self.gpu.wait("an index from the CPU")
        if any(x.dtype in (torch.bool, torch.uint8) for x in indices):
            self.gpu.wait("a mask as an index")
