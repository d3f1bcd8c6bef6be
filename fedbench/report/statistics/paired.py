"""Paired tests: two methods seed by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedbench.report.statistics.intervals import FEWEST, deviation, student, two_sided

ROUNDING = 1e-12  # of a score; below, a difference is one of the order in which domains were summed
ALL_SIGNS = 12  # up to so many pairs the sign-flip test takes all 2^n signs


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference over paired seeds. low, high (95 % interval) and p (paired t-test) exist from three pairs on, the
    interval only where the differences are not all the same number, other than 0.

    n: the replicates tested: seeds, or draws of several seeds · values: their differences in the order of seeds, for
    `p_sign_flip`; empty where the test is not over seeds · seeds: how many both have.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int
    values: Sequence[float]
    seeds: int

    @property
    def p_sign_flip(self) -> float | None:
        """The check of p. It is worked out where it is read, because of many seeds it takes a millisecond."""
        return sign_flip(self.values) if self.p is not None and self.values else None


Draws = Mapping[int, int]  # by seed, the draw that it belongs to; a seed that is not there is a draw of its own


def by_draw(values: Mapping[int, float], draws: Draws) -> dict[int, float]:
    """The mean of each draw over its seeds, in the order of seeds."""
    found: dict[int, list[float]] = {}
    for seed in sorted(values):
        found.setdefault(draws.get(seed, seed), []).append(values[seed])
    return {draw: sum(own) / len(own) for draw, own in found.items()}


def joined(parts: Iterable[Draws]) -> dict[int, int]:
    """The finest draws of which none divides a draw of any part."""
    parts = list(parts)
    found = {seed: {seed} for part in parts for seed in part}
    for part in parts:
        for draw in dict.fromkeys(part.values()):
            whole = set[int]().union(*(found[seed] for seed in part if part[seed] == draw))
            found |= dict.fromkeys(whole, whole)
    return {seed: min(whole) for seed, whole in found.items()}


def difference(
    ours: Mapping[int, float], theirs: Mapping[int, float], draws: Draws | None = None
) -> PairedDifference | None:
    """ours - theirs over the seeds both have; None where they share none. draws: where some seeds are one replicate.

    The differences of the seeds of a draw are averaged first, and the test is over draws.

    Interval and p are Student's t for paired differences. A bootstrap over three or five seeds is far too narrow
    (for three, it ends at the smallest and the largest difference, which covers the truth in 75 % of cases),
    so none is offered. Where all differences are the same number, t has no spread to go by, and would be sure of
    everything; p is the sign-flip test's there, and there is no interval, unless both are equal. What is the same
    number depends on the size of the scores, whose rounding may be all that a small difference varies by.
    """
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    d = list(by_draw({seed: ours[seed] - theirs[seed] for seed in shared}, draws or {}).values())
    n, seeds = len(d), len(shared)
    if not all(map(math.isfinite, d)):
        return PairedDifference(math.fsum(d) / n, None, None, None, n, d, seeds)
    rounding = ROUNDING * max(map(abs, (*d, *(side[seed] for side in (ours, theirs) for seed in shared))))
    d = [0.0 if abs(x) <= rounding else x for x in d]
    mean = math.fsum(d) / n
    if n < FEWEST:
        return PairedDifference(mean, None, None, None, n, d, seeds)
    if max(d) - min(d) <= rounding:
        ends = None if any(d) else 0.0
        return PairedDifference(mean, ends, ends, sign_flip(d), n, d, seeds)
    around = student(d)
    return PairedDifference(mean, around.low, around.high, two_sided(mean / deviation(d) * n**0.5, n - 1), n, d, seeds)


def sign_flip(d: Sequence[float]) -> float:
    """Two-sided p of "the signs of the paired differences d (n,) are fair coins".

    From all 2^n signs, or from 20,000 seeded draws above n = 12. It assumes no normal differences, but n pairs cannot
    give less than 2 / 2^n.
    """
    sums = np.abs(_signs(len(d)) @ np.asarray(d, dtype=float))
    # A hair of tolerance: the same sum in another order of signs may differ in the last bit.
    return float(np.mean(sums >= abs(math.fsum(d)) * (1 - 1e-12) - 1e-15))


@cache
def _signs(n: int) -> np.ndarray:
    """(2^n or 20,000, n) of -1 and 1; the first row are the observed signs, so that p is never 0."""
    if n <= ALL_SIGNS:
        return 1.0 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(20_000, n))
    signs[0] = 1
    return signs
