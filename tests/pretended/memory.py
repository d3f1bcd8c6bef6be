"""What lies on the pretended GPU, and how much it holds."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class Memory:
    """The storages that are marked, by their addresses; these are used by no other while a weak reference is held.

    total: bytes of the whole GPU · fraction: of them for this process · others: bytes that other processes have taken.
    """

    def __init__(self, total: int) -> None:
        self.total, self.fraction, self.others = total, 1.0, 0
        self.most = 0
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self._bytes, self._swept = 0, 0

    @property
    def free(self) -> int:
        return self.total - self.others - self.used()

    def holds(self, tensor: Tensor) -> bool:
        """Whether it lies here; shapes alone, and what has no memory, lie nowhere."""
        try:
            return tensor.untyped_storage()._cdata in self._storages
        except (NotImplementedError, RuntimeError):
            return False

    def take(self, tensor: Tensor) -> None:
        """Mark a tensor. Raises torch.cuda.OutOfMemoryError where it has no room."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._storages:
            return
        self._storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._bytes += storage.nbytes()
        most = min(int(self.total * self.fraction), self.total - self.others)
        if (self._bytes > most or len(self._storages) > 2 * self._swept + 1000) and self.used() > most:
            raise torch.cuda.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {storage.nbytes()} bytes of {most} (pretended)"
            )
        self.most = max(self.most, self._bytes)

    def used(self) -> int:
        """Bytes that are still referred to."""
        self._storages = {at: (ref, size) for at, (ref, size) in self._storages.items() if not ref.expired()}
        self._bytes, self._swept = sum(size for _, size in self._storages.values()), len(self._storages)
        return self._bytes
