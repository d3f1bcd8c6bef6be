"""Pareto fronts: which methods nobody beats at both, the metric and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedbench.report.board_frames import about, page_of, score_columns, subtitle
from fedbench.report.budget import MEANING, PAID, check_known, paid, unknown
from fedbench.report.frames import PLACE, Format, Frame, frame
from fedbench.report.grouping import by_label, settings
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.significance import CONDITIONS
from fedbench.report.statistics.pairs import BETTER, INCONCLUSIVE, WORSE
from fedbench.results import Result
from fedbench.results.metric_direction import higher_is_better, without_noise

ON, BEATEN = "on the front", "beaten"
RESOURCES = (*PAID, "memory")
COSTS = {**MEANING, "memory": "the largest memory of any client"}
TITLES = {"bytes": "bytes", "flops": "FLOPs", "seconds": "simulated", "joules": "energy", "memory": "memory"}


@dataclass(frozen=True)
class Point:
    """One method: what it scored, and what that had cost by the round that is shown, the mean over seeds.

    ahead: who costs no more and has a better mean, or as good a one for less; front: whether nobody is. beaten_by: of
    those the ones that are significantly better. verdict: ON where it is significantly better than
    everybody who costs no more, BEATEN where anybody has beaten it, else INCONCLUSIVE; "" for what is never ranked.
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
    """Points with front, verdict and who is ahead. Only pairs of ranked methods are tested, as of
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
        verdict = BEATEN if beaten_by else ON if sure else INCONCLUSIVE
        found.append(Point(p.row, p.spent, not ahead, verdict, beaten_by, ahead))
    return found + [p for p in points if not p.row.ranked]


def pareto(results: Sequence[Result], boards: Sequence[Leaderboard], what: str) -> Frame:
    """A row for each method of each leaderboard with what it cost and whether it is on the front, the cheapest first.

    Args:
        results: those that the leaderboards are of.
        boards: leaderboards; the rounds they show count.
        what: one of RESOURCES.

    Raises:
        UserError: where it is known of no result what it has spent.
    """
    found = list(zip(boards, fronts(results, boards, what), strict=True))
    rows = [_columns(board, point, what) for board, points in found for point in points]
    why = unknown(results, what)
    pages = []
    for board, points in found:
        there = {p.row.label for p in points}
        without = [row.label for row in board.rows if row.runs and not row.output and row.label not in there]
        one = page_of(board, f"{subtitle(board)} · by {COSTS[what]}")
        pages.append({**one, "notes": [*one["notes"], *([f"{', '.join(without)}: {why}"] if without else [])]})
    legend = [
        f"front: nobody costs no more ({COSTS[what]}, until the round shown, mean over seeds) and has a better mean.",
        f"verdict: {ON}: significantly better than everybody who costs no more; {BEATEN}: somebody who costs no more "
        f"is significantly better (paired t-tests, {CONDITIONS}); {INCONCLUSIVE}: neither.",
        "ahead: who costs no more and has a better mean; beaten by: those of them that are significantly better.",
    ]
    ceilings = any(not point.row.ranked for _, points in found for point in points)
    legend += ["Ceilings are on no front and beat nobody."] if ceilings else []
    return frame(
        rows,
        (*PLACE, "method", "role", "mean", "std", "n_seeds", "spent", "front", "verdict", "beaten_by", "ahead"),
        caption=f"Pareto fronts by {COSTS[what]}",
        pages=pages,
        formats={
            "spent": Format(TITLES[what], "bytes" if what == "memory" else what, "low"),
            "front": Format("front", "yes", left=True),
            "verdict": Format(left=True),
            "beaten_by": Format("beaten by", "names"),
            "ahead": Format("ahead", "names"),
            "role": Format(part=""),
        },
        legend=legend,
        resource=what,
        **about(boards),
    )


def _columns(board: Leaderboard, p: Point, what: str) -> dict[str, Any]:
    scored = {name: value for name, value in score_columns(p.row.average).items() if name in ("mean", "std")}
    judged = {"front": p.front, "verdict": p.verdict, "beaten_by": list(p.beaten_by), "ahead": list(p.ahead)}
    about_it = {"method": p.row.label, "role": p.row.role, "ranked": p.row.ranked, "n_seeds": len(p.row.runs)}
    return {**board.place._asdict(), **about_it, **scored, "spent": p.spent, **judged}
