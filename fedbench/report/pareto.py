"""Pareto fronts: which methods nobody beats at both, the metric and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from fedbench.report.absences import ABSENCES
from fedbench.report.board import WHERE, Leaderboard, Row
from fedbench.report.budget import PAID, TOLD, check_known, paid, unknown
from fedbench.report.columns import exact, heading, scored, spread, subtitle
from fedbench.report.grouping import by_label, settings
from fedbench.report.legends import CONDITIONS, too_few
from fedbench.report.page import Column, Kept, Page, Shown, Table, View, lines_of
from fedbench.report.records import csv_text, json_text
from fedbench.report.statistics.pairs import BETTER, NOT_TOLD, WORSE
from fedbench.results import Result
from fedbench.results.choice import higher_is_better, without_noise
from fedbench.words import amount

ON, BEATEN = "on the front", "beaten"
RESOURCES = (*PAID, "memory")
COSTS = {**TOLD, "memory": "the largest memory of any client"}
TITLES = {"bytes": "bytes", "flops": "FLOPs", "seconds": "simulated", "joules": "energy", "memory": "memory"}
NAMED = 2  # of those that are ahead, in a table

CSV_COLUMNS = (
    *WHERE, "method", "ranked", "mean", "std", "n_seeds", "resource", "spent", "front", "verdict", "beaten_by", "ahead",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One method: what it scored, and what that had cost by the round that is shown, the mean over seeds.

    ahead: who costs no more and has a better mean, or as good a one for less; front: whether nobody is. beaten_by: of
    those the ones that are told apart from it as better. verdict: ON where it is told apart as better than everybody
    who costs no more, BEATEN where anybody has beaten it, else NOT_TOLD; "" for what is never ranked.
    """

    row: Row
    spent: float
    front: bool = False
    verdict: str = ""
    beaten_by: Sequence[str] = ()
    ahead: Sequence[str] = ()

    @property
    def mean(self) -> float:
        assert self.row.average is not None
        return self.row.average.mean

    @cached_property
    def place(self) -> tuple[float, float]:
        """The mean and what was spent, as they are compared."""
        return without_noise(self.mean), without_noise(self.spent)


def fronts(results: Sequence[Result], boards: Sequence[Leaderboard], what: str) -> list[list[Point]]:
    """The points of each leaderboard, the cheapest first, then those that are never ranked.

    boards: those of the results, in their order; the rounds they show count. what: one of RESOURCES. Second outputs
    are left out, and rows without a score, or of which it is not known what they cost. Raises: UserError where it is
    known of none.
    """
    check_known(results, what)
    found = []
    for board, (_, group) in zip(boards, settings(results), strict=True):
        cells = by_label(group)
        found.append(judged(board, [p for row in board.rows if (p := _point(row, cells[row.method], what))]))
    return found


def _point(row: Row, results: Sequence[Result], what: str) -> Point | None:
    if row.output or not row.runs:
        return None
    if what == "memory":
        return Point(row, row.cost.memory_bytes) if row.cost else None
    cells = {r.entry.seed: r for r in results if r.status == "finished"}
    spent = [spending.by(run.round) for run in row.runs if (spending := paid(cells[run.seed], what))]
    return Point(row, sum(spent) / len(spent)) if len(spent) == len(row.runs) else None


def judged(board: Leaderboard, points: Sequence[Point]) -> list[Point]:
    """Points with all that is said of them. Only pairs of ranked methods are told apart, by the tests of
    `compare --pairs`; costs are compared as means over seeds."""
    sign = 1 if higher_is_better(board.metric) else -1
    better = {(pair.method, pair.other) for pair in board.pairs if pair.verdict == BETTER}
    better |= {(pair.other, pair.method) for pair in board.pairs if pair.verdict == WORSE}

    def cheapness(p: Point) -> tuple[float, float]:
        """The cheaper is larger, of equal ones the better."""
        return -p.place[1], sign * p.place[0]

    ranked = sorted((p for p in points if p.row.ranked), key=cheapness, reverse=True)
    found = []
    for p in ranked:
        rivals = [q for q in ranked if q is not p and q.place[1] <= p.place[1]]
        ahead = [q.row.label for q in rivals if cheapness(q)[::-1] > cheapness(p)[::-1]]
        beaten_by = [name for name in ahead if (name, p.row.label) in better]
        sure = all((p.row.label, q.row.label) in better for q in rivals)
        verdict = BEATEN if beaten_by else ON if sure else NOT_TOLD
        found.append(Point(p.row, p.spent, not ahead, verdict, beaten_by, ahead))
    return found + [p for p in points if not p.row.ranked]


def view(results: Sequence[Result], boards: Sequence[Leaderboard], what: str) -> View:
    """A page for each leaderboard. Raises: UserError as `fronts` does."""
    found = list(zip(boards, fronts(results, boards, what), strict=True))
    legend = _legend(what, any(not p.row.ranked for _, points in found for p in points))
    why = unknown(results, what)
    pages = [_page(board, points, what, why) for board, points in found]

    def few(kept: Kept) -> Any:
        return partial(_records, lines_of(found, kept), what)

    return View.of(pages, legend, partial(_records, found, what), to_csv, to_json, few)


def _page(board: Leaderboard, points: Sequence[Point], what: str, why: str) -> Page:
    """why: nobody knows what some have spent."""
    there = {p.row.label for p in points}
    without = [row.label for row in board.rows if row.runs and not row.output and row.label not in there]
    notes = [*board.notes, *([f"{', '.join(without)}: {why}"] if without else [])]
    if not points:
        return Page(heading(board), [], notes, place=board.place)
    faint = [i for i, p in enumerate(points) if not p.row.ranked]
    caption = f"{subtitle(board)} · by {COSTS[what]}"
    return Page(
        heading(board),
        [Table(_columns(points, what, board.metric), caption, faint=faint)],
        [*notes, *too_few(board)],
        place=board.place,
    )


def _columns(points: Sequence[Point], what: str, metric: str) -> list[Column]:
    show = {"memory": "bytes"}.get(what, what)
    costs = [exact(p.spent, partial(amount, what=show)) for p in points]
    return [
        Column("method", "name", [Shown(p.row.label) for p in points]),
        Column("average", "score", [_average(p.row) for p in points], also=(metric,), **scored(metric)),
        Column(TITLES[what], "score", costs, unit=show, best="low", also=(what,)),
        Column("front", "score", [Shown("yes" if p.front else "") for p in points], left=True),
        Column("verdict", "score", [Shown(p.verdict) for p in points], left=True),
        Column("ahead of it", "score", [Shown(_named(p)) for p in points], left=True),
    ]


def _average(row: Row) -> Shown:
    if row.average is None:
        return Shown(ABSENCES[row.status].short)
    return spread(row.average, row.metric)


def _named(p: Point) -> str:
    """Those that have beaten it first; a question mark after those that are not told apart from it."""
    names = [*p.beaten_by, *(f"{name}?" for name in p.ahead if name not in p.beaten_by)]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _legend(what: str, ceilings: bool) -> list[str]:
    found = [
        f"front: nobody costs no more ({COSTS[what]}, until the round shown, mean over seeds) and has a better mean.",
        f"verdict: {ON}: better, told apart, than everybody who costs no more; {BEATEN}: somebody who costs no more is "
        f"better, told apart (paired t-tests, {CONDITIONS}); {NOT_TOLD}: neither.",
        "ahead of it: who costs no more and has a better mean; with a question mark, not told apart from it.",
    ]
    return found + (["Ceilings are on no front and beat nobody."] if ceilings else [])


def _records(found: Sequence[tuple[Leaderboard, Sequence[Point]]], what: str) -> Iterator[dict[str, Any]]:
    for board, points in found:
        for p in points:
            yield {**board.where, **_told(p, what)}


def _told(p: Point, what: str) -> Mapping[str, Any]:
    """In fractions, bytes, FLOPs, seconds and joules."""
    average = p.row.average
    assert average is not None
    scored = {"mean": average.mean, "std": average.std, "n_seeds": average.n}
    said = {"front": p.front, "verdict": p.verdict, "beaten_by": list(p.beaten_by), "ahead": list(p.ahead)}
    return {"method": p.row.label, "ranked": p.row.ranked, **scored, "resource": what, "spent": p.spent, **said}


def to_csv(records: Any) -> str:
    """A row for every method of every leaderboard; names are joined by semicolons."""

    def flat(value: Any) -> Any:
        return ";".join(value) if isinstance(value, list) else value

    return csv_text(CSV_COLUMNS, ([flat(value) for value in record.values()] for record in records()))


def to_json(records: Any) -> str:
    """The rows of the CSV as objects."""
    return json_text(list(records()))
