"""What each method needed until its test score first reached a target: rounds, simulated time, bytes, FLOPs, joules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedbench.errors import UserError
from fedbench.report.absences import ABSENCES
from fedbench.report.board import WHERE, Leaderboard, Row
from fedbench.report.budget import PAID, paid
from fedbench.report.columns import SPREAD, exact, heading
from fedbench.report.grouping import by_label, settings
from fedbench.report.measures import Score, curve, is_fraction, score
from fedbench.report.page import Column, Kept, Page, Shown, Table, View, lines_of
from fedbench.report.records import csv_text, json_text
from fedbench.results import Result
from fedbench.results.choice import higher_is_better, reaches
from fedbench.words import amount

TITLES = {
    "rounds": "round",
    "seconds": "simulated",
    "bytes": "bytes",
    "flops": "FLOPs",
    "joules": "energy",
}  # in the order of the table
CSV_COLUMNS = (*WHERE, "method", "target", "n_seeds", "n_reached", "quantity", "mean", "std")


@dataclass(frozen=True)
class Reach:
    """One row of a leaderboard. seeds: how many have finished; reached: by seed, of those that came to the target,
    what they needed until then, by the names of TITLES; what is not known of a cell is not there."""

    label: str
    status: str
    second: bool
    seeds: int
    reached: Mapping[int, Mapping[str, float]]

    def of(self, what: str) -> Score | None:
        """Over the seeds that reached the target and of which it is known."""
        values = [needed[what] for needed in self.reached.values() if what in needed]
        return score(values) if values else None


def read_target(text: str, metric: str) -> float:
    """`80%`, `80` and `0.8` of what is shown in percent; of a loss the number itself. Raises: UserError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?(%?)", text.strip(), re.ASCII)
    value = float(found[1]) if found else math.nan
    if not is_fraction(metric):
        wrong, right = not found or bool(found[2]), "a number such as 0.5"
    else:
        value = value / 100 if value > 1 or (found and found[2]) else value
        wrong, right = not 0 < value <= 1, "a score such as 80%"
    if wrong:
        raise UserError(f"--reach {text}: not {right}, which is what {metric} can reach")
    return value


def view(results: Sequence[Result], boards: Sequence[Leaderboard], text: str) -> View:
    """A page for each leaderboard. boards: those of the results, in their order. Raises: UserError for a target that is
    none."""
    metric = boards[0].metric if boards else "accuracy"
    target = read_target(text, metric)
    found = [
        (board, [_reach(row, by_label(group)[row.method], target) for row in board.rows])
        for board, (_, group) in zip(boards, settings(results), strict=True)
    ]
    goal = _goal(target, metric)
    pages = [
        _page(board, rows, group, goal) for (board, rows), (_, group) in zip(found, settings(results), strict=True)
    ]

    def few(kept: Kept) -> Any:
        return partial(_records, lines_of(found, kept), target)

    return View.of(pages, _legend(goal), partial(_records, found, target), to_csv, to_json, few)


def _goal(target: float, metric: str) -> str:
    """`accuracy of 80 % or more`."""
    more = "more" if higher_is_better(metric) else "less"
    return (
        f"{metric} of {100 * target:.4g} % or {more}" if is_fraction(metric) else f"{metric} of {target:.4g} or {more}"
    )


def _reach(row: Row, results: Sequence[Result], target: float) -> Reach:
    finished = [r for r in results if r.status == "finished"]
    found = {r.entry.seed: needed for r in finished if (needed := needs(r, row.metric, target))}
    return Reach(row.label, row.status, bool(row.output), len(finished), found)


def needs(result: Result, metric: str, target: float) -> dict[str, float]:
    """What a run had needed, by the names of TITLES, when its average on test images first reached the target; empty
    where it never did."""
    averages = ((t, value) for t, (value, _) in curve(result.digest.scores, metric).items())
    first = next((t for t, value in averages if reaches(value, target, metric)), None)
    if first is None:
        return {}
    spent = {what: spending.by(first) for what in PAID if (spending := paid(result, what))}
    return {"rounds": float(first), **spent}


def _page(board: Leaderboard, rows: Sequence[Reach], group: Sequence[Result], goal: str) -> Page:
    notes = list(board.notes)
    tested = {tuple(sorted(curve(r.digest.scores, board.metric))) for r in group if r.status == "finished"}
    if len(tested) > 1:
        notes.append(
            "not all were tested after the same rounds, and what is tested more often can be seen to arrive earlier"
        )
    faint = [i for i, row in enumerate(rows) if row.second]
    return Page(
        heading(board), [Table(_columns(rows), f"what it took to reach {goal}", faint=faint)], notes, place=board.place
    )


def _columns(rows: Sequence[Reach]) -> list[Column]:
    """Seconds and joules only where they are known of anybody."""
    names = Column("method", "name", [Shown(row.label) for row in rows])
    reached = [
        Shown(f"{len(row.reached)} of {row.seeds}", value=len(row.reached))
        if row.seeds
        else Shown(ABSENCES[row.status].short)
        for row in rows
    ]
    found = [names, Column("seeds", "score", reached, best="high")]
    for what, title in TITLES.items():
        scores = [row.of(what) for row in rows]
        if any(scores) or what not in ("seconds", "joules"):
            facts: dict[str, Any] = {"unit": "" if what == "rounds" else what, "best": "low", "also": (what,)}
            found.append(Column(title, "score", [_shown(one, what) for one in scores], least=len(title), **facts))
    return found


def _shown(one: Score | None, what: str) -> Shown:
    if one is None:
        return Shown("")
    if what != "rounds":
        return exact(one.mean, partial(amount, what=what))
    spread = "" if one.std is None else f"{SPREAD}{one.std:.1f}"
    return Shown(f"{one.mean:.1f}" if spread else f"{one.mean:.0f}", spread, one.mean)


def _legend(goal: str) -> list[str]:
    return [
        f"seeds: how many of the finished ones had an {goal} on test images after any evaluated round.",
        "The other columns: what they had needed by the first such round, the mean over these seeds alone; blank: none "
        "got there. Bytes, FLOPs and energy are of all clients together; simulated: time as the server waits.",
        "Nothing is chosen by it, but a curve that wavers arrives at its first peak.",
    ]


def _records(found: Sequence[tuple[Leaderboard, Sequence[Reach]]], target: float) -> Iterator[dict[str, Any]]:
    for board, rows in found:
        for row in rows:
            told = {"method": row.label, "target": target, "n_seeds": row.seeds, "n_reached": len(row.reached)}
            for what in TITLES:
                if one := row.of(what):
                    yield {**board.where, **told, "quantity": what, "mean": one.mean, "std": one.std}
            if not row.reached:
                yield {**board.where, **told, "quantity": "", "mean": None, "std": None}


def to_csv(records: Any) -> str:
    """A row for each method and quantity; of one that never came to the target a row without any."""
    return csv_text(CSV_COLUMNS, (list(record.values()) for record in records()))


def to_json(records: Any) -> str:
    """The rows of the CSV as objects."""
    return json_text(list(records()))
