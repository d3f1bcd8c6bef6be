"""The pretended GPU: its memory, the waits for it, and its generators."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from pretended.memory import Memory

CUDA = torch.device("cuda", 0)
_NOT_CALLERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


class Gpu(threading.local):
    """memory: shared by all threads, as `waits` are · waits: how often the CPU has waited, by what and where · debug:
    torch's sync debug mode, 0, 1 or 2 · onto: whether what this thread just makes is to lie on the GPU, where its
    inputs do not say so."""

    memory: Memory
    waits: Counter[tuple[str, str]]
    debug = 0
    onto: bool | None = None

    def __init__(self, memory: Memory, waits: Counter) -> None:  # in every thread anew
        self.memory, self.waits = memory, waits

    def holds(self, tensor: Tensor) -> bool:
        return self.memory.holds(tensor)

    def take(self, tensor: Tensor) -> Tensor:
        self.memory.take(tensor)
        return tensor

    @contextmanager
    def making(self, onto: bool | None) -> Iterator[None]:
        """Inside, what is made lies on the GPU, or does not; None: where its inputs lie."""
        before, self.onto = self.onto, onto
        try:
            yield
        finally:
            self.onto = before

    def wait(self, what: str) -> None:
        """The CPU waits for the GPU. Raises RuntimeError where it must not."""
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename.startswith(_NOT_CALLERS):
            frame = frame.f_back
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        self.waits[what, place] += 1
        if self.debug == 2:
            raise RuntimeError(f"called a synchronizing CUDA operation: {what}, {place}")
        if self.debug == 1:
            warnings.warn(f"called a synchronizing CUDA operation: {what}, {place}", stacklevel=2)


class Generator(torch.Generator):
    """torch.Generator for both sides; on the pretended GPU one seed draws other numbers."""

    def __new__(cls, device: torch.device | str = "cpu") -> Generator:
        made = super().__new__(cls, "cpu")
        made.on_gpu = torch.device(device).type == "cuda"
        return made

    @property
    def device(self) -> torch.device:
        return CUDA if self.on_gpu else torch.device("cpu")

    def manual_seed(self, seed: int) -> Generator:
        super().manual_seed(seed ^ 0x6E0D1A if self.on_gpu else seed)
        return self
