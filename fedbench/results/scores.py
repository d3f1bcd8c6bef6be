"""When a cell's models are tested, and what an evaluation table says of them round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.types import GLOBAL

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

NAMED = ("round", "split", "domain", "client", "metric")  # what tells the rows of an evaluation apart
PAIRWISE_FROM = 8  # values, from which numpy adds in pairs
EVALUATIONS = 5  # about how often over a run, where the suite does not say


def evaluated_rounds(rounds: int, every: int | None, at: Sequence[int] | str | None = None) -> set[int]:
    """The rounds (from 1) after which the model is tested: the last, and each `every`-th before it (default: a
    fifth of the run).

    at: instead, the last and these of them; `reference`, as FedRA's released code has it: the 21st, the 41st and so on,
    and the last four.
    """
    if isinstance(at, str):
        return {*range(21, rounds + 1, 20), *range(max(1, rounds - 3), rounds + 1)}
    if at is not None:
        return {rounds, *(t for t in at if t < rounds)}
    step = every or max(1, rounds // EVALUATIONS)
    return set(range(rounds, 0, -step))


def by_client(clients: Mapping[tuple[str, int], float]) -> bool:
    """Whether clients were tested, each on images of its own, and not domains."""
    return all(client != GLOBAL for _, client in clients)


Place = tuple[str, int]  # domain, client


class Layout:
    """Which row of an evaluation table holds what: all that it says but the values, which many cells have in common.

    rows: by metric and split and by round, every (domain, client) and its row.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """columns: those of NAMED, a value for each row."""
        self.rows: dict[tuple[str, str], dict[int, dict[Place, int]]] = {}
        for i, (t, split, domain, client, metric) in enumerate(zip(*(columns[name] for name in NAMED), strict=True)):
            self.rows.setdefault((metric, split), {}).setdefault(t, {})[domain, client] = i


@dataclass(frozen=True)
class Scores:
    """An evaluation table as its readers want it: by metric, split and round the value of every (domain, client)."""

    layout: Layout
    values: np.ndarray

    @classmethod
    def of(cls, table: pyarrow.Table) -> Scores:
        """Of the table of one cell."""
        import numpy as np

        columns = {name: table[name].to_pylist() for name in NAMED}
        return cls(Layout(columns), np.array(table["value"].to_pylist(), float))

    @property
    def metrics(self) -> list[str]:
        """What was measured, in its order."""
        return list(dict.fromkeys(metric for metric, _ in self.layout.rows))

    def of_split(self, split: str) -> list[str]:
        """What was measured on a split, in its order."""
        return [metric for metric, part in self.layout.rows if part == split]

    def tested(self, metric: str, split: str | None = None) -> list[int]:
        """After which rounds, in the order of the table; None: on any split."""
        return [
            t
            for (name, part), found in self.layout.rows.items()
            if name == metric and split in (None, part)
            for t in found
        ]

    def after(self, t: int, metric: str, split: str) -> dict[Place, float]:
        """The value of every (domain, client) after one of these rounds."""
        rows = self.layout.rows[metric, split][t]
        return dict(zip(rows, self.values[[*rows.values()]].tolist(), strict=True))

    def by_round(self, metric: str, split: str) -> dict[int, dict[Place, float]]:
        return {t: self.after(t, metric, split) for t in self.tested(metric, split)}


def by_round(table: pyarrow.Table, metric: str, split: str) -> dict[int, dict[Place, float]]:
    """The value of every (domain, client), by round."""
    return Scores.of(table).by_round(metric, split)


def by_domain(clients: Mapping[tuple[str, int], float]) -> dict[str, float]:
    grouped: dict[str, dict[int, float]] = {}
    for (domain, client), value in clients.items():
        grouped.setdefault(domain, {})[client] = value
    return {d: by[GLOBAL] if GLOBAL in by else mean(list(by.values())) for d, by in grouped.items()}


def average(clients: Mapping[tuple[str, int], float]) -> float:
    """The plain mean over clients where they were tested, else over domains."""
    return mean(list((clients if by_client(clients) else by_domain(clients)).values()))


def spread(values: Sequence[float], lost: int = 0) -> float:
    """The standard deviation over len(values) - lost, numpy's to the bit as `mean`."""
    n = len(values)
    if n < PAIRWISE_FROM:
        middle = mean(values)
        return math.sqrt(_sum([(x - middle) * (x - middle) for x in values]) / (n - lost))
    import numpy as np

    return float(np.std(values, ddof=lost))


def mean(values: Sequence[float]) -> float:
    """numpy's, to the bit. Of fewer than eight values it adds one after the other; a call takes far longer."""
    n = len(values)
    if 0 < n < PAIRWISE_FROM:
        return _sum(values) / n
    import numpy as np

    return float(np.mean(values))


def _sum(values: Sequence[float]) -> float:
    """One after the other; Python's own `sum` is exacter from 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total
