"""Methods over the scenarios of a suite: ranks, paired tests, and pairs that depend on the scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedbench.report.headings import apart
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.significance import apart as different
from fedbench.report.significance import crossing, margin_of
from fedbench.report.statistics import ranks
from fedbench.report.statistics.pairs import Pair, judged, letters
from fedbench.results.metric_direction import higher_is_better

RANKS_FROM = 5  # complete scenarios: of fewer a mean rank and its critical difference say nothing


@dataclass(frozen=True)
class Standing:
    """Methods over the scenarios (blocks) of one suite.

    methods: the best mean rank first. scores: by block, then method, the mean over seeds, of incomplete blocks too;
    ranks: by complete block, then method. left_out: the incomplete blocks, with the methods that each lacks. pairs and
    groups are by paired tests and not by mean ranks. wilcoxon: whether these are over blocks, not over seeds. crossing:
    pairs that are significantly different in two blocks, in opposite directions; then there are no groups.
    """

    suite: str
    profile: str
    metric: str
    split: str
    methods: Sequence[str]
    seeds: Mapping[str, Sequence[int]]
    scores: Mapping[str, Mapping[str, float]]
    ranks: Mapping[str, Mapping[str, float]]
    left_out: Mapping[str, Sequence[str]]
    mean_ranks: Mapping[str, float]
    wilcoxon: bool
    pairs: Sequence[Pair]
    groups: Mapping[str, str]
    crossing: Mapping[tuple[str, str], tuple[str, str]]

    @property
    def ranked(self) -> bool:
        """Whether there are enough complete scenarios for mean ranks."""
        return len(self.ranks) >= RANKS_FROM

    @cached_property
    def friedman(self) -> tuple[float, float] | None:
        """(chi2, p). Made when asked for: scipy takes longer to import than all else."""
        return ranks.friedman([self.scores[title] for title in self.ranks]) if self.ranked else None

    @cached_property
    def cd(self) -> float | None:
        """Nemenyi's critical difference."""
        return ranks.critical_difference(len(self.methods), len(self.ranks)) if self.ranked else None


def standings(boards: Sequence[Leaderboard], equivalent: float | None = None) -> list[Standing]:
    """One for each suite and profile. Benjamini-Hochberg is over the pairs of all of them."""
    suites = by_suite(boards)
    blocks = [_blocks(group) for group in suites]
    complete = [_complete(found) for found in blocks]
    metric = boards[0].metric if boards else ""
    tests = [ranks.across(list(found.values())) if len(found) > 1 else [] for found in complete]
    told = judged(tests, higher_is_better(metric), margin_of(metric, equivalent))
    return [
        _standing(group, scored, whole, pairs)
        for group, scored, whole, pairs in zip(suites, blocks, complete, told, strict=True)
    ]


def by_suite(boards: Sequence[Leaderboard]) -> list[list[Leaderboard]]:
    """The leaderboards of each suite and profile."""
    suites: dict[tuple[str, str], list[Leaderboard]] = {}
    for board in boards:
        suites.setdefault((board.place.suite, board.place.profile), []).append(board)
    return list(suites.values())


def titled(boards: Sequence[Leaderboard]) -> dict[str, Leaderboard]:
    """The leaderboards of a suite by what tells each from the others: its scenario, and what else they differ in."""
    return dict(zip(apart([board.place for board in boards]), boards, strict=True))


def _blocks(boards: Sequence[Leaderboard]) -> dict[str, dict[str, dict[int, float]]]:
    """By what tells a board from the others of its suite, the scores by method and seed."""
    return {title: {name: dict(by) for name, by in board.scores.items()} for title, board in titled(boards).items()}


def _complete(blocks: Mapping[str, Mapping[str, dict[int, float]]]) -> dict[str, dict[str, dict[int, float]]]:
    """The blocks in which every method has a score, of methods that have one in any block."""
    everyone = dict.fromkeys(name for block in blocks.values() for name in block)
    return {
        title: {name: block[name] for name in everyone}
        for title, block in blocks.items()
        if everyone and everyone.keys() <= block.keys()
    }


def _standing(
    boards: Sequence[Leaderboard],
    blocks: Mapping[str, Mapping[str, dict[int, float]]],
    complete: Mapping[str, Mapping[str, dict[int, float]]],
    pairs: Sequence[Pair],
) -> Standing:
    board = boards[0]
    everyone = list(dict.fromkeys(name for block in blocks.values() for name in block))
    crossed = crossing({title: one.pairs for title, one in titled(boards).items()})
    higher = higher_is_better(board.metric)
    scores = {title: {name: ranks.mean(by) for name, by in block.items()} for title, block in blocks.items()}
    placed = {title: ranks.ranked(scores[title], higher) for title in complete}
    means = {name: sum(block[name] for block in placed.values()) / len(placed) for name in everyone if placed}
    methods = sorted(everyone, key=lambda name: means.get(name, 0.0))
    used = list(complete.values())
    tested = len(used) > 1
    return Standing(
        suite=board.place.suite,
        profile=board.place.profile,
        metric=board.metric,
        split=board.split,
        methods=methods,
        seeds={title: sorted({len(by) for by in block.values()}) for title, block in blocks.items()},
        scores=scores,
        ranks=placed,
        left_out={t: [n for n in everyone if n not in b] for t, b in blocks.items() if t not in complete},
        mean_ranks=means if len(placed) >= RANKS_FROM else {},
        wilcoxon=len(used) >= ranks.WILCOXON_FROM,
        pairs=pairs,
        groups=letters(methods, different(pairs)) if tested and not crossed and _enough(methods, used) else {},
        crossing=crossed,
    )


def _enough(methods: Sequence[str], blocks: Sequence[Mapping[str, Mapping[int, float]]]) -> bool:
    """Whether paired tests over these blocks can conclude anything."""
    return len(methods) > 1 and ranks.enough(blocks)
