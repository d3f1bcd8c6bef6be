"""Scenarios: methods over the scenarios of a suite, their scores, ranks and paired tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedbench.report.board_frames import MEANINGS, about, replicates, unranked
from fedbench.report.budget import MEANING
from fedbench.report.frames import DASH, Format, Frame, frame, is_blank, number, page, probability
from fedbench.report.grouping import distinct
from fedbench.report.layout import unit_of
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.missing_values import ABSENCES
from fedbench.report.significance import CONDITIONS, apart, crossing, legend_of_groups, margin_of, too_few
from fedbench.report.statistics import ranks as tests
from fedbench.report.statistics.pairs import Pair, judged, letters
from fedbench.results.metric_direction import higher_is_better
from fedbench.words import counted, shortened

RANKS_FROM = 5  # complete scenarios: of fewer a mean rank and its critical difference say nothing
NOTES = 6  # notes on single leaderboards, before one says how many more there are
PLACES = 4  # scenarios or pairs that a sentence names
WIDE = 30  # letters of the diagram of mean ranks, which is drawn in text
BY = ("suite", "profile")
AT = {
    "best": "each seed's best round on validation examples",
    "last4": "mean of the last four evaluated rounds",
    **{what: f"within a budget of {meaning}" for what, meaning in MEANING.items()},
}
RANK = "rank: 1 is the best mean over seeds in a scenario, ties share the mean of their ranks; ceilings have none."
POOL = (
    "diagram: o is the mean rank, = reaches as far as the critical difference. Nemenyi's verdict on two methods "
    "depends on which others are in the pool (Benavoli et al. 2016); the letters of group do not."
)


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
        place = {label: i for i, label in enumerate(self.methods)}
        shown = sorted(order, key=lambda label: (roles[label] != "ceiling", place.get(label, len(place))))
        return {label: roles[label] for label in shown}


def standings(boards: Sequence[Leaderboard], equivalent: float | None = None) -> list[Standing]:
    """One for each suite and profile. Benjamini-Hochberg is over the pairs of all of them."""
    suites: dict[tuple[str, str], list[Leaderboard]] = {}
    for board in boards:
        suites.setdefault((board.place.suite, board.place.profile), []).append(board)
    named = [titled(group) for group in suites.values()]
    complete = [_complete(group) for group in named]
    metric = boards[0].metric if boards else ""
    pairs = [
        tests.across(list(found.values()), [boards[title].draws for title in found]) if len(found) > 1 else []
        for boards, found in zip(named, complete, strict=True)
    ]
    concluded = judged(pairs, higher_is_better(metric), margin_of(metric, equivalent))
    return [_standing(*found) for found in zip(named, complete, concluded, strict=True)]


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


def _standing(boards: Mapping[str, Leaderboard], complete: Blocks, pairs: Sequence[Pair]) -> Standing:
    blocks = {title: board.scores for title, board in boards.items()}
    everyone = list(dict.fromkeys(name for block in blocks.values() for name in block))
    higher = higher_is_better(next(iter(boards.values())).metric)
    scores = {title: {name: tests.mean(by) for name, by in block.items()} for title, block in blocks.items()}
    placed = {
        title: tests.ranked({name: scores[title][name] for name in complete[title]}, higher) for title in complete
    }
    means = {name: sum(block[name] for block in placed.values()) / len(placed) for name in everyone if placed}
    methods = sorted(everyone, key=lambda name: means.get(name, 0.0))
    crossed = crossing({title: board.pairs for title, board in boards.items()})
    used, draws = list(complete.values()), [boards[title].draws for title in complete]
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


# Frames


def summary(found: Sequence[Standing]) -> Frame:
    """A row for each method of each suite: its tie group and mean rank over scenarios, and its mean in each scenario.

    The mean of a scenario is a column of its name; the letters of its tie group there are a column `SCENARIO group`.
    """
    boards = [board for one in found for board in one.boards.values()]
    rows = [row for one in found for row in _summary_rows(one)]
    scenarios = dict.fromkeys(title for one in found for title in one.boards)
    names = [name for title in scenarios for name in (title, f"{title} group", f"{title} status")]
    formats: dict[str, Format] = {"complete": Format(part="")}
    for title in scenarios:
        formats[title] = Format(title, "score", "metric")
        formats |= {f"{title} {what}": Format(f"{title}, {what}", part="") for what in ("group", "status")}
    ask = (
        "compare boards prints it"
        if len(boards) == 1
        else "compare boards prints them; --scenario, --method, --variant choose"
    )
    legend = [*_summary_legend(found), f"A summary of {counted(len(boards), 'leaderboard')}: {ask}."]
    return frame(
        rows,
        (*BY, "method", "role", "mean_rank", "group", "complete", *names),
        caption="Methods over scenarios",
        by=BY,
        pages=[_summary_page(one) for one in found],
        formats=formats,
        legend=legend,
        **about(boards),
    )


def _summary_rows(one: Standing) -> Iterator[dict[str, Any]]:
    for method, role in one.roles.items():
        found: dict[str, Any] = {"suite": one.suite, "profile": one.profile, "method": method, "role": role}
        ranked = any(rows[method].ranked for rows in one.rows.values() if method in rows)
        found |= {"ranked": ranked, "complete": len(one.ranks)}
        found |= {"mean_rank": one.mean_ranks.get(method), "group": one.groups.get(method, "")}
        for title, rows in one.rows.items():
            if row := rows.get(method):
                mean = row.average.mean if row.average else None
                found |= {title: mean, f"{title} group": row.group, f"{title} status": row.status}
        yield found


def _summary_page(one: Standing) -> dict[str, Any]:
    return page(
        (one.suite, one.profile),
        title=f"{one.suite} · {counted(len(one.boards), 'scenario')} · {one.profile} profile",
        caption=_caption(one),
        above=dependence(one),
        notes=_notes(one),
        remarks=[*_ranked_over(one), *how_grouped(one)],
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


def _caption(one: Standing) -> str:
    rows = [row for found in one.rows.values() for row in found.values() if row.runs]
    metric = unit_of(one.metric)
    if not rows:
        return f"{metric}: no cell has finished"
    rounds, n = {str(row.round) for row in rows}, replicates(one.boards.values())
    at = AT.get(one.first.at) or (f"round {rounds.pop()}" if len(rounds) == 1 else "last round")
    return f"{metric} · {at} · {n if n == '1 seed' else f'mean of {n}'}"


def _ranked_over(one: Standing) -> list[str]:
    """In how many scenarios ranks are taken, and which methods are missing in the others."""
    if len(one.scores) < 2 or (not one.ranks and not one.left_out):
        return []
    if not one.left_out:
        return [f"mean rank: over all {len(one.ranks)} scenarios"] if one.ranked else []
    lacks = Counter(name for names in one.left_out.values() for name in names)
    missing = ", ".join(f"{name} in {n}" for name, n in lacks.most_common())
    whole = f"{len(one.ranks)} of {len(one.scores)} scenarios"
    found = f"mean rank: over {whole}" if one.ranked else f"no mean rank: {whole} complete"
    found += f", with a score of all {len(one.methods)} ranked methods; without one: {missing}"
    alone = Counter(names[0] for names in one.left_out.values() if len(names) == 1)
    for name, n in alone.most_common(1):
        found += f" (without {name} {len(one.ranks) + n} are complete: choose the others with --method)"
    return [found]


def how_grouped(one: Standing) -> list[str]:
    """By which test the letters of `group` are, and what they speak of; nothing where there are none."""
    over = f"{counted(len(one.ranks), 'scenario')} by Wilcoxon's signed ranks, which speaks of scenarios like these"
    seeds = "seeds by paired t-tests of means over these scenarios, which speaks of these alone"
    return [f"group: over {over if one.wilcoxon else seeds}"] if one.groups else []


def _notes(one: Standing) -> list[str]:
    """What stands below the leaderboards, each note once with where it stands."""
    places: dict[str, list[str]] = {}
    for title, board in one.boards.items():
        for text in filter(None, (board.warning, *board.notes, too_few(board.scores, board.replicate))):
            places.setdefault(text, []).append(title)
    where = {text: "" if len(at) == len(one.boards) else f" ({shortened(at, PLACES)})" for text, at in places.items()}
    notes = [f"{text}{where[text]}" for text in sorted(places, key=lambda text: -len(places[text]))]
    more = len(notes) - NOTES
    if more > 1:
        notes = [*notes[:NOTES], f"{counted(more, 'more note')} on single leaderboards: compare boards has them"]
    return notes + (unconcluded(one) if len(one.ranks) > 1 else [])


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


def _summary_legend(found: Sequence[Standing]) -> list[str]:
    boards = [board for one in found for board in one.boards.values()]
    legend = []
    if any(row.group for board in boards for row in board.rows):
        legend.append(
            "letters after a number: methods that share one in that scenario are not significantly different (paired "
            f"t-tests, {CONDITIONS})." + legend_of_groups(unranked(boards)).partition(").")[2]
        )
    if any(one.mean_ranks for one in found):
        legend.append(f"mean {RANK}")
    if any(one.groups for one in found):
        legend.append("group: methods that share a letter are not significantly different over these scenarios.")
    if any(board.replicate == "draw" for board in boards):
        legend.append(MEANINGS["n_draws"])
    return legend


def lettered(found: Frame) -> Frame:
    """A summary for people: the mean of a scenario with the letters of its tie group, or the word for its absence."""
    if found.attrs.get("columns"):
        return found
    cells, metric = dict(found.cells), found.attrs["metric"]
    formats = dict(found.attrs["formats"])
    for title in [name.removesuffix(" status") for name in cells if name.endswith(" status")]:
        rows = zip(*(cells[name] for name in (title, f"{title} group", f"{title} status")), strict=True)
        cells[title] = [_lettered(score, group, status, metric) for score, group, status in rows]
        formats[title] = Format(title)
    return Frame(cells, {**found.attrs, "formats": formats})


def _lettered(value: float, group: str, status: str, metric: str) -> str:
    if is_blank(value):
        return (ABSENCES[status].short or DASH) if isinstance(status, str) else ""
    return f"{number(value, metric)} {group}".strip()


def ranks(found: Sequence[Standing]) -> Frame:
    """A row for each method of each suite: its rank in each complete scenario, mean rank and tie group.

    Mean ranks and a critical difference need five complete scenarios.
    """
    rows, scenarios = [], dict[str, None]()
    for one in found:
        scenarios |= dict.fromkeys(one.scores)
        for method in one.methods:
            placed = {title: by[method] for title, by in one.ranks.items() if method in by}
            over = {"mean_rank": one.mean_ranks.get(method), "group": one.groups.get(method, "")}
            chi2, p = one.friedman or (None, None)
            tested = {"friedman_chi2": chi2, "friedman_p": p, "critical_difference": one.cd}
            diagram = _diagram(one, method) if one.cd is not None else ""
            where = {"suite": one.suite, "profile": one.profile, "method": method}
            rows.append({**where, **over, "diagram": diagram, **tested, **placed})
    hidden = dict.fromkeys(("friedman_chi2", "friedman_p", "critical_difference"), Format(part=""))
    rank = {title: Format(title, "rank", "low") for title in scenarios}
    legend = [RANK]
    if any(one.groups for one in found):
        legend.append(
            "group: methods that share a letter are not significantly different (Benjamini-Hochberg over all pairs of "
            "all suites shown)."
        )
    if any(one.cd is not None for one in found):
        legend.append(POOL)
    return frame(
        rows,
        (*BY, "method", "mean_rank", "group", "diagram", *hidden, *scenarios),
        caption="Ranks over scenarios",
        by=BY,
        pages=[_ranks_page(one) for one in found],
        formats={**hidden, **rank, "diagram": Format("critical difference", left=True, part="diagram")},
        legend=legend,
        metric=found[0].metric if found else "accuracy",
        correction="Benjamini-Hochberg over all pairs of all suites",
    )


def _ranks_page(one: Standing) -> dict[str, Any]:
    lacking: dict[str, list[str]] = {}
    for title, names in one.left_out.items():
        lacking.setdefault(", ".join(names), []).append(title)
    notes = [f"{', '.join(titles)}: incomplete, no score of {names}" for names, titles in lacking.items()]
    remarks = []
    if one.friedman:
        chi2, p = one.friedman
        what = f"{counted(len(one.methods), 'method')} in {counted(len(one.ranks), 'scenario')}"
        remarks.append(f"Friedman: chi2({len(one.methods) - 1}) = {chi2:.2f}, p = {probability(p)}, of {what}")
    if one.cd is not None:
        remarks.append(f"critical difference {one.cd:.2f} (Nemenyi, 5 %): a label to ranks, not a verdict on pairs")
    return page(
        (one.suite, one.profile),
        title=f"{one.suite} · ranks over scenarios · {one.profile} profile",
        caption=f"{one.metric} · ranks in {counted(len(one.ranks), 'complete scenario')}",
        above=dependence(one),
        notes=notes + unconcluded(one),
        remarks=remarks + how_grouped(one),
    )


def _diagram(one: Standing, method: str) -> str:
    k, cd = len(one.methods), one.cd or 0.0

    def place(rank: float) -> int:
        return round((min(rank, k) - 1) / (k - 1) * (WIDE - 1))

    at, to = place(one.mean_ranks[method]), place(one.mean_ranks[method] + cd)
    return "." * at + "o" + "=" * (to - at) + "." * (WIDE - 1 - to)
