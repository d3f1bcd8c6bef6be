"""Every two methods of a leaderboard: better, worse, equal, or inconclusive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fedbench.report.statistics.corrections import benjamini_hochberg
from fedbench.report.statistics.paired import Difference, difference

ALPHA = 0.05
BETTER, WORSE, EQUAL, INCONCLUSIVE = "better", "worse", "equal", "inconclusive"
OPPOSITE = {BETTER: WORSE, WORSE: BETTER}


@dataclass(frozen=True)
class Pair(Difference):
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


def all_pairs(scores: Mapping[str, Mapping[int, float]]) -> list[Pair]:
    """Of every two methods that share a seed, in their order. scores: by method, then by seed."""
    return [pair for one, two in combinations(scores, 2) if (pair := paired(one, scores[one], two, scores[two]))]


def paired(method: str, ours: Mapping[int, float], other: str, theirs: Mapping[int, float]) -> Pair | None:
    found = difference(ours, theirs)
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
