"""Pareto fronts: which methods no other one beats at both, the metric and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas

from fedbench.report.budget import MEANING, PAID, check_known, unknown
from fedbench.report.frames import PLACE, Format, frame
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.significance import CONDITIONS
from fedbench.report.statistics.pairs import BETTER, INCONCLUSIVE, Pair, turned
from fedbench.report.views.leaderboard import about, page_of, subtitle
from fedbench.results.metric_direction import higher_is_better, without_noise

ON, BEATEN = "on the front", "beaten"
RESOURCES = (*PAID, "memory")
COSTS = {**MEANING, "memory": "the largest memory of any client"}
TITLES = {"bytes": "bytes", "flops": "FLOPs", "seconds": "simulated", "joules": "energy", "memory": "memory"}


def pareto(boards: Sequence[Leaderboard], what: str) -> pandas.DataFrame:
    """A row for each method of each leaderboard with what it cost and whether it is on the front, the cheapest first.

    `ahead` are those that cost no more and have a better mean, or as good a one for less; on the `front` is a method
    that none is ahead of. Of those, the significantly better ones are `beaten_by`. The verdict is ON for a method that
    is significantly better than all that cost no more, BEATEN where one has beaten it, else INCONCLUSIVE; what is never
    ranked has none and comes last. Second outputs and methods of unknown cost are left out.

    Args:
        boards: leaderboards; the rounds they show count.
        what: one of RESOURCES.

    Raises:
        UserError: where it is known of no result what it has spent.
    """
    results = [r for board in boards for part in board.cells.values() for r in part]
    check_known(results, what)
    rows, pages = [], []
    for board in boards:
        here = [row for row in board.rows if row.runs and not row.output]
        known = [_columns(board, row, spent) for row in here if (spent := _spent(row, what)) is not None]
        rows += judged(known, board.pairs, higher_is_better(board.metric))
        without = [row.label for row in here if row.label not in {one["method"] for one in known}]
        one = page_of(board, f"{subtitle(board)} · by {COSTS[what]}")
        one["notes"] += [f"{', '.join(without)}: {unknown(results, what)}"] if without else []
        pages.append(one)
    legend = [
        f"front: nobody costs no more ({COSTS[what]}, until the round shown, mean over seeds) and has a better mean.",
        f"verdict: {ON}: significantly better than everybody who costs no more; {BEATEN}: somebody who costs no more "
        f"is significantly better (paired t-tests, {CONDITIONS}); {INCONCLUSIVE}: neither.",
        "ahead: who costs no more and has a better mean; beaten by: those of them that are significantly better.",
        *["Ceilings are on no front and beat nobody."] * any(not row["ranked"] for row in rows),
    ]
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


def _spent(row: Row, what: str) -> float | None:
    """The mean over seeds until the round shown; None where it is not known of all of them."""
    if what == "memory":
        return row.cost["memory_max"] if row.cost else None
    cells = row.finished
    spent = [spending.by(run.round) for run in row.runs if (spending := cells[run.seed].paid(what))]
    return sum(spent) / len(spent) if len(spent) == len(row.runs) else None


def _columns(board: Leaderboard, row: Row, spent: float) -> dict[str, Any]:
    assert row.average is not None
    names = {"method": row.label, "role": row.role, "ranked": row.ranked, "n_seeds": len(row.runs)}
    scored = {"mean": row.average.mean, "std": row.average.std, "spent": spent}
    return {**board.place._asdict(), **names, **scored, "front": False, "verdict": "", "beaten_by": [], "ahead": []}


def judged(rows: Sequence[dict[str, Any]], pairs: Sequence[Pair], higher: bool) -> list[dict[str, Any]]:
    """The rows of one leaderboard in order, with front, verdict, beaten_by and ahead.

    Only pairs of ranked methods are tested, as of `compare pairs`; costs are compared as means over seeds.
    """
    better = {(pair.method, pair.other) for pair in (*pairs, *map(turned, pairs)) if pair.verdict == BETTER}

    def worth(row: dict[str, Any]) -> tuple[float, float]:
        """(mean, cost), the larger the better."""
        return (1 if higher else -1) * without_noise(row["mean"]), -without_noise(row["spent"])

    ranked = sorted((row for row in rows if row["ranked"]), key=lambda row: worth(row)[::-1], reverse=True)
    found = []
    for row in ranked:
        name = row["method"]
        rivals = [one for one in ranked if one is not row and worth(one)[1] >= worth(row)[1]]
        ahead = [one["method"] for one in rivals if worth(one) > worth(row)]
        beaten_by = [one for one in ahead if (one, name) in better]
        surely = all((name, one["method"]) in better for one in rivals)
        verdict = BEATEN if beaten_by else ON if surely else INCONCLUSIVE
        found.append({**row, "front": not ahead, "verdict": verdict, "beaten_by": beaten_by, "ahead": ahead})
    return found + [row for row in rows if not row["ranked"]]
