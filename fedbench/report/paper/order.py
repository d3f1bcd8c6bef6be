"""The order in which a paper and the measurement put the methods, which other data can be asked about too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbench.report.paper.comparison import AVERAGE, Comparison, Paper, percent


@dataclass(frozen=True)
class Order:
    """The methods that both have, from the best average to the worst, those that read alike together.

    swapped: how many of the `pairs` that neither ties stand the other way round in the paper.
    """

    measured: Sequence[Sequence[str]]
    paper: Sequence[Sequence[str]]
    swapped: int
    pairs: int


def order(comparison: Comparison, paper: Paper) -> Order | None:
    """Both orders; None where fewer than two methods can be ordered."""
    ours: dict[str, float] = {}
    theirs: dict[str, float] = {}
    for label, row in comparison.methods:
        measured = percent(row, AVERAGE) if row is not None else None
        printed = paper.percent(label, AVERAGE)
        if measured is not None and printed is not None:
            ours[label], theirs[label] = round(measured, 1), printed
    return ordered(ours, theirs) if len(ours) > 1 else None


def ordered(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Order:
    """The two orders of the same methods, higher values first."""
    names = list(ours)
    signs = [
        (ours[a] - ours[b]) * (theirs[a] - theirs[b]) for position, a in enumerate(names) for b in names[position + 1 :]
    ]
    return Order(_ranked(ours), _ranked(theirs), sum(s < 0 for s in signs), sum(s != 0 for s in signs))


def _ranked(values: Mapping[str, float]) -> list[list[str]]:
    ranks: dict[float, list[str]] = {}
    for name, value in values.items():
        ranks.setdefault(value, []).append(name)
    return [ranks[value] for value in sorted(ranks, reverse=True)]
