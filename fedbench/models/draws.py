"""The numbers that a client's dropout draws, the same ones however its batches are cut in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


class Draws:
    """One client's numbers in [0, 1)."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.part: tuple[int, int, int] | None = None  # the first image that passes, how many do, of how many

    def parts(self, B: int, micro_batch: int | None) -> Iterator[slice]:
        """The micro-batches of a step's batch of B images; each is given the numbers that it has in the whole batch."""
        self.part = None
        if micro_batch is None or micro_batch >= B:
            yield slice(0, B)
            return
        begun = self.state()
        for first in range(0, B, micro_batch):
            self.resume(begun)
            rows = slice(first, min(first + micro_batch, B))
            self.part = (first, rows.stop - first, B)
            yield rows

    def state(self) -> tuple[Any, ...]:
        """Where it stands within a step."""
        return self.generator.get_state(), self.part

    def resume(self, state: tuple[Any, ...]) -> None:
        """Go on from there."""
        generator, self.part = state
        self.generator.set_state(generator)

    def numbers(self, count: int) -> Tensor:
        """(count,) float32"""
        if self.part is None:
            return self._rand(count)
        first, rows, B = self.part
        each = count // rows
        return self._rand(each * B)[first * each : first * each + count]

    def _rand(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator, device=self.generator.device)


def drawn_by(draws: Sequence[Draws | torch.Generator], counts: Sequence[int]) -> Tensor:
    """The numbers of several clients, so many of each, one after the other."""
    of_each = [draw if isinstance(draw, Draws) else Draws(draw) for draw in draws]
    parts = [draw.numbers(count) for draw, count in zip(of_each, counts, strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
