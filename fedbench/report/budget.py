"""Methods at equal expense: a budget of clients' bytes or FLOPs, and how far a run comes with it."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from fedbench.errors import UserError
from fedbench.words import NAMES

if TYPE_CHECKING:
    import pyarrow

    from fedbench.results import Result

# What is counted, by the name of the budget: columns of rounds.parquet, over all clients.
PAID = {"bytes": ("bytes_down", "bytes_up"), "flops": ("flops",)}
UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}


@dataclass(frozen=True)
class Budget:
    """What all clients together may spend, in bytes (down and up) or FLOPs.

    amount: None for what the cheapest method of a leaderboard spends in all its rounds.
    """

    what: str
    amount: float | None = None


def read_budget(text: str) -> Budget | None:
    """`bytes`, `bytes=1.5GB`, `flops=2e15`, `flops=2PFLOPs`; None where it begins with neither word.

    Units are decimal. Raises: UserError for an amount that is none.
    """
    what, sign, amount = text.partition("=")
    if what not in PAID:
        return None
    if not sign:
        return Budget(what)
    unit = NAMES[what]
    found = re.fullmatch(rf"([0-9.]+(?:e\+?[0-9]+)?) ?([kmgtpe]?)(?:{unit})?", amount.strip(), re.IGNORECASE)
    try:
        value = float(found[1]) * UNITS[found[2].lower()] if found else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise UserError(f"--at {text}: '{amount}' is no amount of {what}. Write {what}=2G{unit} or {what}=2e9.")
    return Budget(what, value)


@dataclass(frozen=True)
class Spending:
    """What all clients of a run have paid: totals[i] is by the end of rounds[i]; rounds in which nobody takes part are
    not among them. Work that was lost was paid for too."""

    rounds: Sequence[int]
    totals: Sequence[float]

    def by(self, t: int) -> float:
        """The total by the end of round t."""
        place = bisect_right(self.rounds, t)
        return self.totals[place - 1] if place else 0.0

    def until(self, amount: float) -> float:
        """The last round that ends within the amount; infinity where all of them do."""
        place = bisect_right(self.totals, amount)
        return self.rounds[place] - 1 if place < len(self.rounds) else math.inf

    @property
    def total(self) -> float:
        return self.totals[-1] if self.totals else 0.0


def spending(table: pyarrow.Table, what: str) -> Spending:
    """Of a rounds table, in bytes or FLOPs."""
    paid: dict[int, float] = {}
    for t, *amounts in zip(*(table[name].to_pylist() for name in ("round", *PAID[what])), strict=True):
        paid[t] = paid.get(t, 0) + sum(amounts)
    rounds = sorted(paid)
    return Spending(rounds, list(accumulate(paid[t] for t in rounds)))


def cheapest(cells: Mapping[str, Iterable[Result]], what: str) -> tuple[str, float] | None:
    """(label, total) of the method whose dearest finished seed spends least; None where nothing has been spent.

    The dearest seed, so that all seeds of that method stand at their last round.
    """
    totals = {
        label: max(spent)
        for label, results in cells.items()
        if (spent := [spending(r.rounds, what).total for r in results if r.status == "finished"]) and max(spent) > 0
    }
    return min(totals.items(), key=lambda item: item[1], default=None)
