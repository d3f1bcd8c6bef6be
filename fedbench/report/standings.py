"""Scenarios: methods over the scenarios of a suite, their scores, ranks and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedbench.report.grouping import distinct
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.significance import crossing, margin_of
from fedbench.report.statistics import ranks as tests
from fedbench.report.statistics.pairs import Pair, apart, judged, letters
from fedbench.results.scores import higher_is_better
from fedbench.words import counted, shortened

RANKS_FROM = 5  # complete scenarios: of fewer a mean rank and its critical difference say nothing
PLACES = 4  # scenarios or pairs that a sentence names
RANK = "rank: 1 is the best mean over seeds in a scenario, ties share the mean of their ranks; ceilings have none."
BY = ("suite", "profile")


@dataclass(frozen=True)
class Standing:
    """Methods over the scenarios of one suite.

    Attributes:
        boards: The leaderboards by scenario and what else they differ in.
        methods: The ranked ones, the best mean rank first.
        scores: By scenario, then method, the mean over seeds, of incomplete scenarios too.
        ranks: By complete scenario, then method.
        left_out: The incomplete scenarios, with the methods that each lacks.
        wilcoxon: Whether pairs and groups, which are by paired tests and not by mean ranks, are over scenarios and not
            over seeds.
        crossing: Pairs that are significantly different in two scenarios, in opposite directions; then there are no
            groups.
    """

    boards: Mapping[str, Leaderboard]
    methods: Sequence[str]
    scores: Mapping[str, Mapping[str, float]]
    ranks: Mapping[str, Mapping[str, float]]
    left_out: Mapping[str, Sequence[str]]
    mean_ranks: Mapping[str, float]
    wilcoxon: bool
    pairs: Sequence[Pair]
    groups: Mapping[str, str]
    crossing: Mapping[tuple[str, str], tuple[str, str]]

    @property
    def first(self) -> Leaderboard:
        return next(iter(self.boards.values()))

    @property
    def suite(self) -> str:
        return self.first.place.suite

    @property
    def profile(self) -> str:
        return self.first.place.profile

    @property
    def metric(self) -> str:
        return self.first.metric

    @property
    def ranked(self) -> bool:
        """Whether there are enough complete scenarios for mean ranks."""
        return len(self.ranks) >= RANKS_FROM

    @cached_property
    def friedman(self) -> tuple[float, float] | None:
        """(chi2, p). Made when asked for: scipy takes longer to import than all else."""
        return tests.friedman([self.scores[title] for title in self.ranks]) if self.ranked else None

    @cached_property
    def cd(self) -> float | None:
        """Nemenyi's critical difference."""
        return tests.critical_difference(len(self.methods), len(self.ranks)) if self.ranked else None

    @cached_property
    def rows(self) -> dict[str, dict[str, Row]]:
        """By leaderboard, then method; second outputs are left out."""
        return {title: {row.label: row for row in board.rows if not row.output} for title, board in self.boards.items()}

    @property
    def roles(self) -> dict[str, str]:
        """By method: ceilings first, then the best mean rank, then those without a score."""
        roles = {label: row.role for found in reversed(self.rows.values()) for label, row in found.items()}
        order = dict.fromkeys(label for found in self.rows.values() for label in found)
        position = {label: i for i, label in enumerate(self.methods)}
        shown = sorted(order, key=lambda label: (roles[label] != "ceiling", position.get(label, len(position))))
        return {label: roles[label] for label in shown}


def standings(boards: Sequence[Leaderboard], equivalent: float | None = None) -> list[Standing]:
    """One for each suite and profile. Benjamini-Hochberg is over the pairs of each."""
    suites: dict[tuple[str, str], list[Leaderboard]] = {}
    for board in boards:
        suites.setdefault((board.place.suite, board.place.profile), []).append(board)
    named = [titled(group) for group in suites.values()]
    complete = [_complete(group) for group in named]
    return [_standing(*one, equivalent) for one in zip(named, complete, strict=True)]


def titled(boards: Sequence[Leaderboard]) -> dict[str, Leaderboard]:
    """The leaderboards of a suite by what tells each from the others: its scenario, and what else they differ in."""
    return dict(zip(distinct([board.place for board in boards]), boards, strict=True))


Blocks = Mapping[str, Mapping[str, Mapping[int, float]]]  # by scenario, then method, then seed


def _complete(boards: Mapping[str, Leaderboard]) -> Blocks:
    """The scores of the scenarios in which every method has one, of methods that have one in any."""
    blocks = {title: board.by_seed for title, board in boards.items()}
    everyone = dict.fromkeys(name for block in blocks.values() for name in block)
    return {
        title: {name: block[name] for name in everyone}
        for title, block in blocks.items()
        if everyone and everyone.keys() <= block.keys()
    }


def _standing(boards: Mapping[str, Leaderboard], complete: Blocks, equivalent: float | None) -> Standing:
    blocks = {title: board.scores for title, board in boards.items()}
    everyone = list(dict.fromkeys(name for block in blocks.values() for name in block))
    metric = next(iter(boards.values())).metric
    higher = higher_is_better(metric)
    scores = {title: {name: tests.mean(by) for name, by in block.items()} for title, block in blocks.items()}
    placed = {
        title: tests.ranked({name: scores[title][name] for name in complete[title]}, higher) for title in complete
    }
    means = {name: sum(block[name] for block in placed.values()) / len(placed) for name in everyone if placed}
    methods = sorted(everyone, key=lambda name: means.get(name, 0.0))
    crossed = crossing({title: board.pairs for title, board in boards.items()})
    used, draws = list(complete.values()), [boards[title].draws for title in complete]
    pairs = judged(tests.across(used if len(used) > 1 else [], draws), higher, margin_of(metric, equivalent))
    concluded = len(used) > 1 and not crossed and len(methods) > 1 and tests.enough(used, draws)
    return Standing(
        boards=boards,
        methods=methods,
        scores=scores,
        ranks=placed,
        left_out={t: [n for n in everyone if n not in b] for t, b in blocks.items() if t not in complete},
        mean_ranks=means if len(placed) >= RANKS_FROM else {},
        wilcoxon=len(used) >= tests.WILCOXON_FROM,
        pairs=pairs,
        groups=letters(methods, apart(pairs)) if concluded else {},
        crossing=crossed,
    )


def dependence(one: Standing) -> str:
    """Which pairs depend on the scenario; "" for none."""
    if not one.crossing:
        return ""
    named = [f"{a} and {b} ({in_a} and {in_b})" for (a, b), (in_a, in_b) in one.crossing.items()]
    return (
        f"Which method is best depends on the scenario: of {counted(len(named), 'pair')} each is significantly better "
        f"in some scenario: {shortened(named, PLACES)}."
    )


def how_grouped(one: Standing) -> list[str]:
    """By which test the letters of `group` are, and what they speak of; nothing where there are none."""
    over = f"{counted(len(one.ranks), 'scenario')} by Wilcoxon's signed ranks, which speaks of scenarios like these"
    seeds = "seeds by paired t-tests of means over these scenarios, which speaks of these alone"
    return [f"group: over {over if one.wilcoxon else seeds}"] if one.groups else []


def unconcluded(one: Standing) -> list[str]:
    """Why nothing is said over scenarios, where that is so."""
    if not one.ranks:
        return ["no scenario has all methods, so there are no ranks; --method chooses some that all have"]
    if len(one.ranks) == 1:
        return ["1 complete scenario: nothing is concluded over scenarios"]
    found = []
    if not one.ranked:
        found.append(f"{counted(len(one.ranks), 'complete scenario')}: no mean ranks, which take at least {RANKS_FROM}")
    if one.crossing:
        found.append("no group over scenarios: which method is better depends on the scenario")
    elif not one.groups and len(one.methods) > 1:
        few = "fewer than three seeds in common and fewer than six scenarios"
        found.append(f"{few}: nothing is concluded about which method is better over scenarios")
    return found
