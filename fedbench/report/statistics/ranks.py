"""Methods over several scenarios: mean ranks, Friedman's test, Nemenyi's critical difference, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from fedbench.report.statistics.intervals import FEWEST
from fedbench.report.statistics.pairs import ALPHA, Pair, paired
from fedbench.report.statistics.signedranks import signed_ranks
from fedbench.results.metric_direction import without_noise

WILCOXON_FROM = 6  # scenarios: of five, no signed-rank test can give less than 2 / 2^5 = 0.06

Scores = Mapping[int, float]  # by seed


def mean(scores: Scores) -> float:
    """Over seeds: within a scenario they are replicates, and it is one block however many there are."""
    return math.fsum(scores.values()) / len(scores)


def ranked(scores: Mapping[str, float], higher: bool) -> dict[str, float]:
    """1 for the best method of one scenario; ties share the mean of their ranks.

    Scores that differ by rounding alone tie.
    """
    signed = {name: without_noise(-value if higher else value) for name, value in scores.items()}
    values = list(signed.values())
    below = {name: sum(other < value for other in values) for name, value in signed.items()}
    return {name: below[name] + (1 + values.count(value)) / 2 for name, value in signed.items()}


def friedman(blocks: Sequence[Mapping[str, float]]) -> tuple[float, float] | None:
    """(chi2, p) of "all methods rank alike" (Friedman 1937), ties corrected; blocks: by scenario, the score by method.

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


def across(blocks: Sequence[Mapping[str, Scores]]) -> list[Pair]:
    """Every two methods over all scenarios; blocks: by scenario, the scores by method and seed.

    From six scenarios on, Wilcoxon's signed-rank test of the differences of means over seeds: what it finds is said of
    scenarios like these, and n counts them. Below, no such test can find anything; there the differences are averaged
    over scenarios for every seed that all of them have, and tested by t over seeds, which is said of these scenarios
    alone. No interval stands beside Wilcoxon's p.
    """
    pairs = list(combinations(blocks[0], 2)) if blocks else []
    if len(blocks) >= WILCOXON_FROM:
        return _over_scenarios(pairs, blocks)
    return [pair for one, two in pairs if (pair := _over_seeds(one, two, blocks))]


def _over_scenarios(pairs: Sequence[tuple[str, str]], blocks: Sequence[Mapping[str, Scores]]) -> list[Pair]:
    means = {name: [mean(block[name]) for block in blocks] for name in blocks[0]}
    d = [[round(x - y, 12) for x, y in zip(means[one], means[two], strict=True)] for one, two in pairs]
    tested = zip(pairs, d, signed_ranks(d), strict=True)
    return [
        Pair(math.fsum(x) / len(x), None, None, p, len(x), (), method=one, other=two) for (one, two), x, p in tested
    ]


def _over_seeds(one: str, two: str, blocks: Sequence[Mapping[str, Scores]]) -> Pair | None:
    shared = set.intersection(*({*block[one]} & {*block[two]} for block in blocks))
    ours, theirs = (
        {seed: math.fsum(block[name][seed] for block in blocks) / len(blocks) for seed in shared} for name in (one, two)
    )
    return paired(one, ours, two, theirs)


def enough(blocks: Sequence[Mapping[str, Scores]]) -> bool:
    """Whether the paired tests can conclude anything."""
    if len(blocks) >= WILCOXON_FROM:
        return True
    seeds = [{*scores} for block in blocks for scores in block.values()]
    return bool(seeds) and len(set.intersection(*seeds)) >= FEWEST


def bars(mean_ranks: Sequence[float], cd: float) -> list[tuple[float, float]]:
    """The longest runs of mean ranks that lie within cd of each other, as (first, last)."""
    ordered = sorted(mean_ranks)
    found: list[tuple[float, float]] = []
    for first in ordered:
        last = max(rank for rank in ordered if rank - first <= cd)
        if last > first and not (found and last <= found[-1][1]):
            found.append((first, last))
    return found
