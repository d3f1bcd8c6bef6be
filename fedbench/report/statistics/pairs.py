"""Pairs of methods: better, worse, equal or inconclusive; corrections for many tests, and tie groups as letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from string import ascii_letters

from fedbench.report.statistics.paired import Draws, PairedDifference, difference

ALPHA = 0.05
BETTER, WORSE, EQUAL, INCONCLUSIVE = "better", "worse", "equal", "inconclusive"
OPPOSITE = {BETTER: WORSE, WORSE: BETTER}


@dataclass(frozen=True)
class Pair(PairedDifference):
    """method minus other. q: p after Benjamini-Hochberg, None for fewer than three shared seeds.

    within: the interval lies inside the margin of equivalence. A pair that is both significant and within is better or
    worse, because that is what the test says; the margin says that it matters little.
    """

    method: str
    other: str
    q: float | None = None
    verdict: str = ""
    within: bool = False

    @property
    def apart(self) -> bool:
        return self.verdict in OPPOSITE

    def turned(self) -> Pair:
        """The same pair the other way round."""
        low = None if self.high is None else -self.high
        high = None if self.low is None else -self.low
        verdict = OPPOSITE.get(self.verdict, self.verdict)
        other, method = self.method, self.other
        values = [-value for value in self.values]
        turned = replace(self, mean=-self.mean, low=low, high=high, values=values)
        return replace(turned, verdict=verdict, method=method, other=other)


def all_pairs(scores: Mapping[str, Mapping[int, float]], draws: Draws | None = None) -> list[Pair]:
    """Of every two methods that share a seed, in their order. scores: by method, then by seed · draws: as of
    `difference`."""
    found = (paired(one, scores[one], two, scores[two], draws) for one, two in combinations(scores, 2))
    return [pair for pair in found if pair]


def paired(
    method: str, ours: Mapping[int, float], other: str, theirs: Mapping[int, float], draws: Draws | None = None
) -> Pair | None:
    found = difference(ours, theirs, draws)
    return Pair(**vars(found), method=method, other=other) if found else None


def judged(boards: Iterable[Sequence[Pair]], higher: bool, margin: float | None) -> list[list[Pair]]:
    """The pairs of several leaderboards with q and verdict; Benjamini-Hochberg is over all of them together.

    higher: whether a higher score is better. margin: differences below it are called equal where the interval lies
    inside; None for never.
    """
    boards = [list(board) for board in boards]
    tested = [pair.p for board in boards for pair in board if pair.p is not None]
    q = iter(benjamini_hochberg(tested))
    return [
        [judge(pair, next(q) if pair.p is not None else None, higher, margin) for pair in board] for board in boards
    ]


def judge(pair: Pair, q: float | None, higher: bool, margin: float | None) -> Pair:
    """The verdict: better or worse where q <= 0.05; else equal where the 95 % interval lies inside the margin.

    The latter is two one-sided tests at 2.5 % each (Schuirmann 1987), for each pair by itself.
    """
    within = (
        margin is not None and pair.low is not None and pair.high is not None and max(-pair.low, pair.high) < margin
    )
    verdict = EQUAL if within else INCONCLUSIVE
    if q is not None and q <= ALPHA and pair.mean:
        verdict = BETTER if (pair.mean > 0) == higher else WORSE
    return replace(pair, q=q, verdict=verdict, within=within)


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """The q of every p, in their order: rejecting all q <= alpha lets a share of alpha of the rejections be false.

    q_(i) = min over j >= i of p_(j) m / j for the i-th smallest of m (Benjamini and Hochberg 1995). Where nothing is
    different, every rejection is false, and so there is one in at most alpha of all families.
    """
    m = len(p)
    found = [1.0] * m
    least = 1.0
    for rank, i in zip(range(m, 0, -1), sorted(range(m), key=lambda i: p[i], reverse=True), strict=True):
        least = min(least, p[i] * m / rank)
        found[i] = least
    return found


def letters(methods: Sequence[str], apart: Collection[frozenset[str]]) -> dict[str, str]:
    """By method, its letters: two methods share one if and only if they are not significantly different.

    A compact letter display (Piepho, An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons, 2004):
    insert and absorb, then letters that say nothing new are left out. methods: the best first, which has the letter a.
    apart: the pairs that are significantly different.
    """
    place = {name: i for i, name in enumerate(methods)}
    groups = {frozenset(methods)}
    for pair in (found for two in combinations(methods, 2) if (found := frozenset(two)) in apart):
        split = {group - {name} for group in groups if pair <= group for name in pair}
        kept = {group for group in groups if not pair <= group}
        groups = kept | {group for group in split if not any(group <= other for other in kept)}
    columns = _needed(sorted(groups, key=lambda group: sorted(place[name] for name in group)))
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
