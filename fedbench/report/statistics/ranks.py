"""Methods over several scenarios: mean ranks, Friedman's test, Nemenyi's critical difference, and signed ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fedbench.report.statistics.pairs import ALPHA, FEWEST, Draws, Pair, by_draw, joined, paired
from fedbench.results.scores import without_noise

WILCOXON_FROM = 6  # scenarios: of five, no signed-rank test can give less than 2 / 2^5 = 0.06

Scores = Mapping[int, float]  # by seed


def mean(scores: Scores, draws: Draws | None = None) -> float:
    """Over replicates: within a scenario these are one block however many there are. draws: as of `by_draw`."""
    values = by_draw(scores, draws or {}).values()
    return math.fsum(values) / len(values)


def ranked(scores: Mapping[str, float], higher: bool) -> dict[str, float]:
    """1 for the best method of one scenario; ties share the mean of their ranks.

    Scores that differ by rounding alone tie.
    """
    signed = {name: without_noise(-value if higher else value) for name, value in scores.items()}
    values = list(signed.values())
    below = {name: sum(other < value for other in values) for name, value in signed.items()}
    return {name: below[name] + (1 + values.count(value)) / 2 for name, value in signed.items()}


def friedman(blocks: Sequence[Mapping[str, float]]) -> tuple[float, float] | None:
    """(chi2, p) of "all methods rank the same" (Friedman 1937), ties corrected.

    blocks: by scenario, the score by method.

    None for fewer than three methods or two scenarios, and where everything ties. chi2 has k - 1 degrees of freedom for
    k methods, an approximation that wants more than 5 methods and 10 scenarios (Demsar 2006); with fewer it finds too
    little rather than too much.
    """
    from scipy.stats import friedmanchisquare

    if len(blocks) < 2 or len(blocks[0]) < 3:
        return None
    if all(max(block.values()) - min(block.values()) < 1e-12 for block in blocks):
        return None
    found = friedmanchisquare(*([without_noise(block[name]) for block in blocks] for name in blocks[0]))
    return float(found.statistic), float(found.pvalue)


def critical_difference(methods: int, scenarios: int) -> float | None:
    """How far two mean ranks must be apart at 5 % (Nemenyi 1963; Demsar 2006, Section 3.2.2): q sqrt(k (k + 1) / 6 N).

    q is the studentized range's quantile for k methods and infinitely many degrees of freedom, divided by sqrt(2).
    """
    from scipy.stats import studentized_range

    if methods < 2 or scenarios < 2:
        return None
    q = float(studentized_range.ppf(1 - ALPHA, methods, math.inf)) / 2**0.5
    return q * (methods * (methods + 1) / (6 * scenarios)) ** 0.5


def across(blocks: Sequence[Mapping[str, Scores]], draws: Sequence[Draws] = ()) -> list[Pair]:
    """Every two methods over all scenarios.

    From six scenarios on, Wilcoxon's signed-rank test of the differences of means over seeds: what it finds is said of
    scenarios like these, and n counts them. Below, no such test can find anything; there the differences are averaged
    over scenarios for every seed that all of them have, and tested by t over seeds, which is said of these scenarios
    alone. No interval stands next to Wilcoxon's p.

    Args:
        blocks: by scenario, the scores by method and seed.
        draws: of each.
    """
    draws = draws or [{}] * len(blocks)
    methods = list(blocks[0]) if blocks else []
    if len(blocks) < WILCOXON_FROM:
        return paired({name: _over_blocks(name, blocks) for name in methods}, joined(draws))
    own = list(zip(blocks, draws, strict=True))
    means = {name: [mean(block[name], drawn) for block, drawn in own] for name in methods}
    pairs = list(combinations(methods, 2))
    d = [[round(x - y, 12) for x, y in zip(means[one], means[two], strict=True)] for one, two in pairs]
    none = math.nan
    return [
        Pair(*pair, math.fsum(x) / len(x), none, none, p, len(x), 0, ())
        for pair, x, p in zip(pairs, d, signed_ranks(d), strict=True)
    ]


def _over_blocks(name: str, blocks: Sequence[Mapping[str, Scores]]) -> dict[int, float]:
    """By seed that all blocks have, a method's mean over them."""
    shared = set.intersection(*({*block[name]} for block in blocks))
    return {seed: math.fsum(block[name][seed] for block in blocks) / len(blocks) for seed in shared}


def enough(blocks: Sequence[Mapping[str, Scores]], draws: Sequence[Draws] = ()) -> bool:
    """Whether the paired tests can conclude anything."""
    if len(blocks) >= WILCOXON_FROM:
        return True
    seeds = [{*scores} for block in blocks for scores in block.values()]
    return bool(seeds) and len(by_draw(dict.fromkeys(set.intersection(*seeds), 0.0), joined(draws))) >= FEWEST


def bars(mean_ranks: Sequence[float], cd: float) -> list[tuple[float, float]]:
    """The longest runs of mean ranks that lie within cd of each other, as (first, last)."""
    ordered = sorted(mean_ranks)
    found: list[tuple[float, float]] = []
    for first in ordered:
        last = max(rank for rank in ordered if rank - first <= cd)
        if last > first and not (found and last <= found[-1][1]):
            found.append((first, last))
    return found


# Differences, up to which p is counted from all signs: with ties or zeros among them, and without. Of more it is the
# normal approximation. Both numbers are scipy's, and so are the p.
EXACT, PLAIN = 13, 50


def signed_ranks(rows: Sequence[Sequence[float]]) -> list[float]:
    """Two-sided p of each row (Wilcoxon 1945), all rows being of one length.

    Zeros share their ranks between both signs (Pratt 1959; Demsar halves them likewise), and nothing but zeros is 1.
    The numbers are those of scipy row by row (`zero_method="zsplit"`), to rounding. But a call of scipy's takes some
    milliseconds, of a row with ties more than a second, and a hundred methods make 4,950 rows.
    """
    found = []
    for d in rows:
        plain = all(d) and len({*map(abs, d)}) == len(d)
        found.append((exact if len(d) <= (PLAIN if plain else EXACT) else normal)(d) if any(d) else 1.0)
    return found


def _ranks(d: Sequence[float]) -> np.ndarray:
    """1 for the smallest size; ties share the mean of their ranks."""
    _, position, counts = np.unique(np.abs(d), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[position]


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
