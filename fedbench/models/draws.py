"""The numbers that a client's dropout draws: those of a whole step in few calls, however many adapters ask for some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

AT_ONCE = 2**22  # numbers of one call at most, but for an adapter that asks for more


class Draws:
    """One client's numbers in [0, 1). From the second step on, several adapters' are drawn by one call, if each asks
    for as many as in the step before, or all for so many times as many, as for a shorter batch.

    On a CPU they are those that a call for each would draw; on a GPU they are others, and all engines draw so.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.before: list[int] = []  # how many each adapter asked for in the step before, and in this one
        self.asked: list[int] = []
        self.ahead: list[Tensor] = []  # drawn and not yet asked for, the next one last
        self.part: tuple[int, int, int] | None = None  # the first image that passes, how many do, of how many

    def begin(self) -> None:
        """A step begins."""
        self.before, self.asked, self.part = self.asked, [], None
        if self.generator.device.type != "cpu":  # a recorded step must not depend on what was left
            self.ahead = []

    def parts(self, B: int, micro_batch: int | None) -> Iterator[slice]:
        """The micro-batches of a step's batch of B images; each is given the numbers that it has in the whole batch."""
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
        return self.generator.get_state(), list(self.asked), list(self.ahead), self.part

    def resume(self, state: tuple[Any, ...]) -> None:
        """Go on from there."""
        generator, asked, ahead, self.part = state
        self.generator.set_state(generator)
        self.asked, self.ahead = list(asked), list(ahead)

    def numbers(self, count: int) -> Tensor:
        """(count,) float32"""
        if self.part is None:
            return self._next(count)
        first, rows, B = self.part
        each = count // rows
        return self._next(each * B)[first * each : first * each + count]

    def _next(self, count: int) -> Tensor:
        if not self.ahead:
            self.ahead = self._drawn(count)
        self.asked.append(count)
        found = self.ahead.pop()
        if len(found) == count:
            return found
        left = torch.cat([found, *reversed(self.ahead)])  # another batch than before
        if len(left) < count:
            left = torch.cat([left, self._rand(count - len(left))])
        self.ahead = [left[count:]] if len(left) > count else []
        return left[:count]

    def _drawn(self, count: int) -> list[Tensor]:
        """So many, and what the step will then go on to ask for if it is as the one before."""
        coming = self.before[len(self.asked) :]
        sizes, like = [count], coming[0] if coming else 0
        while like and len(sizes) < len(coming):
            more, odd = divmod(coming[len(sizes)] * count, like)
            if odd or sum(sizes) + more > AT_ONCE:
                break
            sizes.append(more)
        return list(self._rand(sum(sizes)).split(sizes))[::-1] if len(sizes) > 1 else [self._rand(count)]

    def _rand(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator, device=self.generator.device)


def drawn_by(draws: Sequence[Draws | torch.Generator], counts: Sequence[int]) -> Tensor:
    """The numbers of several clients, so many of each, one after the other."""
    of_each = [draw if isinstance(draw, Draws) else Draws(draw) for draw in draws]
    parts = [draw.numbers(count) for draw, count in zip(of_each, counts, strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
