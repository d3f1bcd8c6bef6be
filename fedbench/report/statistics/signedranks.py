"""Wilcoxon's signed-rank test of many rows of differences, one for each two methods."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

# Differences, up to which p is counted from all signs: with ties or zeros among them, and without. Of more it is the
# normal approximation. Both numbers are scipy's, and so are the p.
EXACT, PLAIN = 13, 50


def signed_ranks(rows: Sequence[Sequence[float]]) -> list[float]:
    """Two-sided p of each row (Wilcoxon 1945), all rows being of one length.

    Zeros share their ranks between both signs (Pratt 1959; Demsar halves them likewise), and nothing but zeros is 1.
    The numbers are those of scipy row by row (`zero_method="zsplit"`), to rounding. But a call of scipy's takes some
    milliseconds, of a row with ties more than a second, its import longer than a leaderboard of ten thousand cells, and
    a hundred methods make 4,950 rows.
    """
    return [_two_sided(d) if any(d) else 1.0 for d in rows]


def _two_sided(d: Sequence[float]) -> float:
    n, plain = len(d), all(d) and len({*map(abs, d)}) == len(d)
    if not plain:
        return exact(d) if n <= EXACT else normal(d)
    if n > PLAIN:
        return normal(d)
    counts = _sums(n)
    positive = round(sum(rank for x, rank in zip(d, _ranks(d), strict=True) if x > 0))
    return float(min(1.0, 2 * min(counts[: positive + 1].sum(), counts[positive:].sum()) / 2**n))


@cache
def _sums(n: int) -> np.ndarray:
    """Of the 2^n signs of the ranks 1 to n, how many give each sum of the positive ones."""
    counts = np.ones(1)
    for rank in range(1, n + 1):
        counts = np.pad(counts, (0, rank)) + np.pad(counts, (rank, 0))
    return counts


def _ranks(d: Sequence[float]) -> list[float]:
    """1 for the smallest size; ties share the mean of their ranks."""
    sizes = [abs(x) for x in d]
    first: dict[float, int] = {}
    counts = Counter(sizes)
    for place, size in enumerate(sorted(sizes), 1):
        first.setdefault(size, place)
    return [first[size] + (counts[size] - 1) / 2 for size in sizes]


def normal(d: Sequence[float]) -> float:
    """Two-sided p as if the sum of the positive ranks were normal, its variance less for ties."""
    n, ranks = len(d), _ranks(d)
    positive = sum(rank for x, rank in zip(d, ranks, strict=True) if x > 0)
    positive += sum(rank for x, rank in zip(d, ranks, strict=True) if x == 0) / 2
    ties = sum(t**3 - t for t in Counter(map(abs, d)).values())
    variance = (n * (n + 1) * (2 * n + 1) - ties / 2) / 24
    return math.erfc(abs(positive - n * (n + 1) / 4) / math.sqrt(2 * variance))


def exact(d: Sequence[float]) -> float:
    """Two-sided p over all signs of the differences d (n,), ties and zeros among them.

    The sum of the ranks of one sign is counted rank by rank: with each, half of the signs add it. Ranks are doubled,
    so that the mean of two is a whole number. What zeros give to either sign is the same for all signs.
    """
    signed = [(x > 0, round(2 * rank)) for x, rank in zip(d, _ranks(d), strict=True) if x]
    counts = np.ones(1)
    for _, rank in signed:
        counts = np.pad(counts, (0, rank)) + np.pad(counts, (rank, 0))
    positive = sum(rank for above, rank in signed if above)
    tails = counts[: positive + 1].sum(), counts[positive:].sum()
    return float(min(1.0, 2 * min(tails) / counts.sum()))
