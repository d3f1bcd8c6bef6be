"""What a run has paid, round by round: bytes, FLOPs and joules of all clients together, or simulated seconds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from fedbench.results.metric_direction import without_noise

if TYPE_CHECKING:
    import pyarrow

# What is counted, by the name of the budget: columns of rounds.parquet, over all clients, or of clock.parquet.
PAID = {"bytes": ("bytes_down", "bytes_up"), "flops": ("flops",), "seconds": ("duration",), "joules": ("energy",)}


@dataclass(frozen=True)
class Spending:
    """What a run has paid: totals[i] is by the end of rounds[i]; rounds in which nobody takes part are not among them.
    Work that was lost was paid for too."""

    rounds: Sequence[int]
    totals: Sequence[float]

    def by(self, t: int) -> float:
        """The total by the end of round t."""
        place = bisect_right(self.rounds, t)
        return self.totals[place - 1] if place else 0.0

    def until(self, amount: float) -> float:
        """The last round that ends within the amount; infinity where all of them do."""
        place = bisect_right(self.totals, without_noise(amount), key=without_noise)
        return self.rounds[place] - 1 if place < len(self.rounds) else math.inf

    @property
    def total(self) -> float:
        return self.totals[-1] if self.totals else 0.0


def spending(table: pyarrow.Table, what: str) -> Spending:
    """Of a rounds table in bytes, FLOPs or joules, of a clock table in seconds; no column may hold nulls."""
    paid: dict[int, float] = {}
    for t, *amounts in zip(*(table[name].to_pylist() for name in ("round", *PAID[what])), strict=True):
        paid[t] = paid.get(t, 0) + sum(amounts)
    rounds = sorted(paid)
    return Spending(rounds, list(accumulate(paid[t] for t in rounds)))
