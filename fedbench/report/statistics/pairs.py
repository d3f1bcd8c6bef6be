"""Intervals of means over seeds, and pairs of methods: differences, verdicts, the correction for many, tie groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from string import ascii_letters
from typing import NamedTuple

import numpy as np
import pandas

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


ALPHA = 0.05
BETTER, WORSE, EQUAL, INCONCLUSIVE = "better", "worse", "equal", "inconclusive"
OPPOSITE = {BETTER: WORSE, WORSE: BETTER}
ROUNDING = 1e-12  # of a score; below, a difference is one of the order in which domains were summed
ALL_SIGNS = 12  # up to so many pairs the sign-flip test takes all 2^n signs


class Pair(NamedTuple):
    """Method minus other: the mean difference with its 95 % interval and p, which are NaN where they do not exist.

    Attributes:
        n: the replicates tested, seeds or draws.
        values: their differences.
        n_seeds: how many both have.
        q, verdict, within: see `judged`.
    """

    method: str
    other: str
    difference: float
    ci_low: float
    ci_high: float
    p: float
    n: int
    n_seeds: int
    values: Sequence[float]
    q: float = math.nan
    verdict: str = ""
    within: bool = False


Draws = Mapping[int, int]  # by seed, the draw that it belongs to; a seed that is not there is a draw of its own
Scores = Mapping[str, Mapping[int, float]]  # by method, by seed


def verdicts(
    scores: Scores,
    higher: bool,
    margin: float | None,
    draws: Draws | None = None,
    pairs: Iterable[tuple[str, str]] | None = None,
) -> list[Pair]:
    """What is concluded of every two methods of one leaderboard, the family of tests that are corrected together.

    Args:
        scores: of the methods, in order.
        higher: whether a higher score is better.
        margin: differences below it are called equal where the interval lies inside; None for never.
        draws: where several seeds are one replicate.
        pairs: those that are compared; all if not given.

    Returns:
        Of `paired`, with the verdicts of `judged`.
    """
    return judged(paired(scores, draws, pairs), higher, margin)


def paired(scores: Scores, draws: Draws | None = None, pairs: Iterable[tuple[str, str]] | None = None) -> list[Pair]:
    """Paired differences, method minus other, over the seeds that both have; nothing of pairs that share none.

    The differences of the seeds of a draw are averaged first, and the test is over draws. Interval and p are Student's
    t for paired differences, from three pairs on. A bootstrap over three or five seeds is far too narrow (for three, it
    ends at the smallest and the largest difference, which covers the truth in 75 % of cases), so none is offered.

    Where all differences are the same number, t has no spread to go by, and would be sure of everything: p is the
    sign-flip test's there, and there is no interval, unless both are equal. What is the same number depends on the size
    of the scores, whose rounding may be all that a small difference varies by.
    """
    chosen = combinations(scores, 2) if pairs is None else pairs
    known = ((one, two, _difference(scores[one], scores[two], draws or {})) for one, two in chosen)
    return [Pair(one, two, *found) for one, two, found in known if found]


def frame_of(pairs: Iterable[Pair]) -> pandas.DataFrame:
    """A row for each pair."""
    return pandas.DataFrame(list(pairs), columns=Pair._fields).astype({"values": object})


def _difference(ours: Mapping[int, float], theirs: Mapping[int, float], draws: Draws) -> tuple | None:
    """The columns of `paired` after the names; None where no seed is shared."""
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    d = list(by_draw({seed: ours[seed] - theirs[seed] for seed in shared}, draws).values())
    n, none = len(d), math.nan
    if not all(map(math.isfinite, d)):
        return math.fsum(d) / n, none, none, none, n, len(shared), d
    rounding = ROUNDING * max(map(abs, (*d, *(side[seed] for side in (ours, theirs) for seed in shared))))
    d = [0.0 if abs(x) <= rounding else x for x in d]
    mean = math.fsum(d) / n
    if n < FEWEST:
        return mean, none, none, none, n, len(shared), d
    if max(d) - min(d) <= rounding:
        end = none if any(d) else 0.0
        return mean, end, end, sign_flip(d), n, len(shared), d
    from scipy.special import stdtr

    error = float(np.std(d, ddof=1)) / n**0.5
    half = t_quantile(n) * error
    return mean, mean - half, mean + half, 2 * float(stdtr(n - 1, -abs(mean / error))), n, len(shared), d


def judged(pairs: Sequence[Pair], higher: bool, margin: float | None) -> list[Pair]:
    """Pairs that are one family of tests, with `q`, `verdict` and `within`.

    q is p after Benjamini-Hochberg, NaN where there is no p. The verdict is better or worse where q <= 0.05; else equal
    where the 95 % interval lies inside the margin: two one-sided tests at 2.5 % each (Schuirmann 1987), for each pair
    by itself. A pair that is both significant and within is better or worse, because that is what the test says; the
    margin says that it matters little.
    """
    tested = [pair.p for pair in pairs if pair.p == pair.p]
    q = iter(benjamini_hochberg(tested).tolist())
    return [_judge(pair, next(q) if pair.p == pair.p else math.nan, higher, margin) for pair in pairs]


def _judge(pair: Pair, q: float, higher: bool, margin: float | None) -> Pair:
    within = margin is not None and -margin < pair.ci_low and pair.ci_high < margin
    verdict = EQUAL if within else INCONCLUSIVE
    if q <= ALPHA and pair.difference:
        verdict = BETTER if (pair.difference > 0) == higher else WORSE
    return pair._replace(q=q, verdict=verdict, within=within)


def turned(pair: Pair) -> Pair:
    """The same pair the other way round."""
    return pair._replace(
        method=pair.other,
        other=pair.method,
        difference=-pair.difference,
        ci_low=-pair.ci_high,
        ci_high=-pair.ci_low,
        values=[-value for value in pair.values],
        verdict=OPPOSITE.get(pair.verdict, pair.verdict),
    )


def apart(pairs: Iterable[Pair]) -> set[frozenset[str]]:
    """The pairs that are significantly different."""
    return {frozenset((pair.method, pair.other)) for pair in pairs if pair.verdict in OPPOSITE}


def benjamini_hochberg(p: Sequence[float]) -> np.ndarray:
    """The q of every p (m,), in their order: rejecting all q <= alpha lets a share of alpha of the rejections be false.

    q_(i) = min over j >= i of p_(j) m / j for the i-th smallest of m (Benjamini and Hochberg 1995). Where nothing is
    different, every rejection is false, and so there is one in at most alpha of all families.
    """
    values = np.asarray(p, float)
    m, order = len(values), np.argsort(-values, kind="stable")
    q = np.empty(m)
    q[order] = np.minimum.accumulate(np.minimum(1.0, values[order] * m / np.arange(m, 0, -1)))
    return q


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


def letters(methods: Sequence[str], differ: Collection[frozenset[str]]) -> dict[str, str]:
    """By method, its letters: two methods share one if and only if they are not significantly different.

    A compact letter display (Piepho, An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons, 2004):
    insert and absorb, then letters that say nothing new are left out. methods: the best first, which has the letter a.
    differ: the pairs that are significantly different.
    """
    position = {name: i for i, name in enumerate(methods)}
    groups = {frozenset(methods)}
    for pair in (found for two in combinations(methods, 2) if (found := frozenset(two)) in differ):
        split = {group - {name} for group in groups if pair <= group for name in pair}
        kept = {group for group in groups if not pair <= group}
        groups = kept | {group for group in split if not any(group <= other for other in kept)}
    columns = _needed(sorted(groups, key=lambda group: sorted(position[name] for name in group)))
    return {name: "".join(_letter(i) for i, group in enumerate(columns) if name in group) for name in methods}


def _needed(groups: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Without the groups whose every pair stands in another one that stays; the last are tried first."""
    pairs = {group: [frozenset(pair) for pair in combinations(group, 2)] or [group] for group in groups}
    stand = Counter(pair for group in groups for pair in pairs[group])
    kept = list(groups)
    for group in reversed(groups):
        if all(stand[pair] > 1 for pair in pairs[group]):
            stand.subtract(pairs[group])
            kept.remove(group)
    return kept


def _letter(i: int) -> str:
    return ascii_letters[i] if i < len(ascii_letters) else f"({i + 1})"
