"""Intervals of a mean over seeds: Student's t for few of them, BCa bootstrap from twenty on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95
FEWEST = 3  # seeds, before anything is concluded from them
# Below, BCa is too narrow: of ten normal values it covers the mean in 90 % of cases in place of 95, of five in 85 %
# (docs/statistics.md has what was measured).
BCA_FROM = 20
RESAMPLES = 9999


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a mean. kind: "t" or "bca"."""

    low: float
    high: float
    kind: str


def interval(values: Sequence[float]) -> Interval | None:
    """None for fewer than three values, and where one is not finite."""
    n = len(values)
    if n < FEWEST or not all(map(math.isfinite, values)):
        return None
    return bca(values) if n >= BCA_FROM else student(values)


def student(values: Sequence[float]) -> Interval:
    """Mean +- t_(n-1) s / sqrt(n) (Student 1908), s with n - 1 below the line."""
    n, mean = len(values), math.fsum(values) / len(values)
    half = t_quantile(n) * deviation(values) / n**0.5
    return Interval(mean - half, mean + half, "t")


@cache
def t_quantile(n: int) -> float:
    """t_(n-1) of a 95 % interval from n values."""
    from scipy.special import stdtrit  # which takes as long to import as a small leaderboard to make

    return float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation (n - 1 below the line), 0 where all values are the same number but for rounding."""
    if max(values) - min(values) <= 1e-12 * max(map(abs, values)):
        return 0.0
    mean = math.fsum(values) / len(values)
    return (math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)) ** 0.5


def bca(values: Sequence[float]) -> Interval:
    """The bias-corrected and accelerated bootstrap of the mean (Efron, Better Bootstrap Confidence Intervals, 1987).

    From 9,999 seeded resamples: equal values give equal intervals. z0 counts half of the resamples that equal the mean,
    and the acceleration a is the jackknife's, which for a mean is that of the values' own third moment.
    """
    from scipy.special import ndtr, ndtri

    x = np.sort(np.asarray(values, dtype=float))  # the order of seeds must not decide which resample has which
    mean = float(x.mean())
    if deviation(values) == 0:
        return Interval(mean, mean, "bca")
    means = np.sort(_weights(len(x)) @ x)
    below = (np.searchsorted(means, mean, "left") + np.searchsorted(means, mean, "right")) / 2 / RESAMPLES
    z0 = ndtri(min(max(below, 1 / RESAMPLES), 1 - 1 / RESAMPLES))
    d = x - mean
    a = (d**3).sum() / (6 * (d**2).sum() ** 1.5)
    z = z0 + ndtri((1 + np.array([-1, 1]) * CONFIDENCE) / 2)
    low, high = np.quantile(means, ndtr(z0 + z / (1 - a * z)))
    return Interval(float(low), float(high), "bca")


@cache
def _weights(n: int) -> np.ndarray:
    """(9999, n): the share that each of n values has in each resample."""
    return np.random.default_rng(0).multinomial(n, [1 / n] * n, size=RESAMPLES) / n
