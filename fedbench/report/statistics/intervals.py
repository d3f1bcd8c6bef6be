"""Intervals of a mean over seeds: Student's t for few of them, BCa bootstrap from twenty on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

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
    n = len(values)
    mean = math.fsum(values) / n
    half = quantile(CONFIDENCE, n - 1) * deviation(values) / n**0.5
    return Interval(mean - half, mean + half, "t")


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation (n - 1 below the line), 0 where all values are the same number.

    Sums are exact, so that equal values give no rounding that a test would take for a spread.
    """
    mean = math.fsum(values) / len(values)
    if max(values) - min(values) <= 1e-12 * max(map(abs, values)):
        return 0.0
    return (math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)) ** 0.5


def bca(values: Sequence[float]) -> Interval:
    """The bias-corrected and accelerated bootstrap of the mean (Efron, Better Bootstrap Confidence Intervals, 1987).

    From 9,999 seeded resamples: equal values give equal intervals. z0 counts half of the resamples that equal the mean,
    and the acceleration a is the jackknife's, which for a mean is that of the values' own third moment.
    """
    x = np.sort(np.asarray(values, dtype=float))  # the order of seeds must not decide which resample has which
    if deviation(values) == 0:
        return Interval(float(x.mean()), float(x.mean()), "bca")
    normal, mean = NormalDist(), float(x.mean())
    means = np.sort(_weights(len(x)) @ x)
    below = (np.searchsorted(means, mean, "left") + np.searchsorted(means, mean, "right")) / 2 / RESAMPLES
    z0 = normal.inv_cdf(min(max(below, 1 / RESAMPLES), 1 - 1 / RESAMPLES))
    d = x - mean
    a = float((d**3).sum() / (6 * (d**2).sum() ** 1.5))
    ends = [z0 + normal.inv_cdf((1 + side * CONFIDENCE) / 2) for side in (-1, 1)]
    low, high = np.quantile(means, [normal.cdf(z0 + z / (1 - a * z)) for z in ends])
    return Interval(float(low), float(high), "bca")


@cache
def _weights(n: int) -> np.ndarray:
    """(9999, n): the share that each of n values has in each resample."""
    return np.random.default_rng(0).multinomial(n, [1 / n] * n, size=RESAMPLES) / n


# Student's t in closed form: a leaderboard needs it, and scipy.stats takes longer to import than to print one.


def two_sided(t: float, df: int) -> float:
    """P(|T| > |t|) for Student's T with a whole number of degrees of freedom df, to 15 decimals.

    With a = atan(|t| / sqrt(df)), P(|T| < |t|) is a finite sum in cos(a) (Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.3 for odd and 26.7.4 for even df).
    """
    return max(0.0, 1 - _within(math.atan2(abs(t), df**0.5), df))


@cache
def quantile(confidence: float, df: int) -> float:
    """The t with P(|T| < t) = confidence, by halving the angle a of `two_sided`."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, df) < confidence else (low, middle)
    return df**0.5 * math.tan(low)


def _within(angle: float, df: int) -> float:
    """P(|T| < sqrt(df) tan(angle))."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for k in range(2 + odd, df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
