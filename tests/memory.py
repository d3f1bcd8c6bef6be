"""How much memory tensors take, counted."""

from __future__ import annotations

import gc
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def count_from_here() -> None:
    """Leave out of `live_bytes` all that there is by now: late in a session that is millions of objects to look at."""
    gc.collect()
    gc.freeze()


def live_bytes() -> int:
    """Of all tensors made since `count_from_here`, each memory once; those of shapes alone have none.

    What nobody can reach any more is collected first: it would be counted, or be gone by the next count.
    """
    gc.collect()
    tensors = (thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter))
    tensors = (tensor for tensor in tensors if not tensor.is_meta)
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


class Allocated(TorchDispatchMode):
    """Bytes of the storages made inside and still alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.now, self.peak = {}, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {a.untyped_storage()._cdata for a in args if isinstance(a, torch.Tensor)}
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in given:
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage) -> None:
        key = storage._cdata
        if key in self.sizes:
            return
        self.sizes[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self.now -= self.sizes.pop(key)
