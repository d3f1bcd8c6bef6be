"""A metric over rounds, or over what clients spend: what of it is drawn, wherever that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbench.report.budget import check_known, paid
from fedbench.report.drawn import Board
from fedbench.report.measures import curve
from fedbench.results import Result

# What the x axis may be, and how it is called.
AXES = {
    "rounds": "round",
    "bytes": "bytes down + up, all clients",
    "flops": "FLOPs of all clients",
    "seconds": "simulated time",
    "joules": "energy of all clients",
}


class Point(NamedTuple):
    """One evaluated round of one seed: where on the x axis, and its average and domains."""

    x: float
    average: float
    domains: Mapping[str, float]


@dataclass(frozen=True)
class Line:
    """One method in one panel: x (R,) of its evaluated rounds, mean and sample standard deviation over seeds (R,), NaN
    for one seed. What was spent is a mean over seeds, too."""

    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def by_panel(boards: Sequence[Board], metric: str, by_domain: bool, x: str) -> dict[str, dict[str, Line]]:
    """The lines of every panel, by title and method, in order. Raises: UserError where of no result is known what it
    has spent."""
    if x != "rounds":
        check_known([r for board in boards for part in board.methods.values() for r in part], x)
    panels: dict[str, dict[str, Line]] = {}
    for board in boards:
        for label, results in board.methods.items():
            seeds = [found for r in results if (found := points(r, metric, x))]
            domains = dict.fromkeys(d for seed in seeds for point in seed.values() for d in point.domains)
            for domain in domains if by_domain else [None] if seeds else ():
                title = " · ".join(filter(None, (board.title if len(boards) > 1 or not domain else "", domain)))
                panels.setdefault(title, {})[label] = line(seeds, domain)
    return panels


def points(result: Result, metric: str, x: str) -> dict[int, Point]:
    """By evaluated round; none where it is not known what was spent."""
    found = curve(result.digest.scores, metric)
    if x == "rounds":
        return {t: Point(t, *values) for t, values in found.items()}
    spent = paid(result, x)
    return {t: Point(spent.by(t), *values) for t, values in found.items()} if spent else {}


def line(seeds: Sequence[Mapping[int, Point]], domain: str | None) -> Line:
    found = [[seed[t] for seed in seeds if t in seed] for t in sorted({t for seed in seeds for t in seed})]
    values = [[_value(point, domain) for point in each] for each in found]
    std = [np.std(v, ddof=1) if len(v) > 1 else np.nan for v in values]
    x = [np.mean([point.x for point in each]) for each in found]
    return Line(np.array(x), np.array([np.mean(v) for v in values]), np.array(std))


def _value(point: Point, domain: str | None) -> float:
    return point.average if domain is None else point.domains.get(domain, np.nan)
