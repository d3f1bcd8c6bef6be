"""Wilcoxon's signed-rank test of many rows of differences, one for each two methods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

EXACT = 13  # differences with ties or zeros, up to which p is counted from all signs; of more it is scipy's normal one


def signed_ranks(rows: Sequence[Sequence[float]]) -> list[float]:
    """Two-sided p of each row (Wilcoxon 1945), all rows being of one length.

    Zeros share their ranks between both signs (Pratt 1959; Demsar halves them likewise), and nothing but zeros is 1.
    The numbers are those of scipy row by row. But a call of scipy's takes some milliseconds, of a row with ties more
    than a second, and a hundred methods make 4,950 rows: rows without ties and zeros are tested in one call (it
    chooses its method for all rows of a call), and of short ones with ties the signs are counted here.
    """
    from scipy.stats import wilcoxon

    plain = [i for i, d in enumerate(rows) if all(d) and len({*map(abs, d)}) == len(d)]
    found = dict.fromkeys(range(len(rows)), 1.0)
    if plain:
        together = wilcoxon(np.array([rows[i] for i in plain]), zero_method="zsplit", axis=1).pvalue
        found |= zip(plain, map(float, together), strict=True)
    for i in found.keys() - plain:
        if any(rows[i]):
            short = len(rows[i]) <= EXACT
            found[i] = exact(rows[i]) if short else float(wilcoxon(rows[i], zero_method="zsplit").pvalue)
    return list(found.values())


def exact(d: Sequence[float]) -> float:
    """Two-sided p over all signs of the differences d (n,), ties and zeros among them.

    The sum of the ranks of one sign is counted rank by rank: with each, half of the signs add it. Ranks are doubled,
    so that the mean of two is a whole number. What zeros give to either sign is the same for all signs.
    """
    sizes = [abs(x) for x in d]
    ranks = [2 * sum(other < x for other in sizes) + sizes.count(x) + 1 for x in sizes]
    signed = [(x > 0, rank) for x, rank in zip(d, ranks, strict=True) if x]
    counts = np.ones(1)
    for _, rank in signed:
        counts = np.pad(counts, (0, rank)) + np.pad(counts, (rank, 0))
    positive = sum(rank for above, rank in signed if above)
    tails = counts[: positive + 1].sum(), counts[positive:].sum()
    return float(min(1.0, 2 * min(tails) / counts.sum()))
