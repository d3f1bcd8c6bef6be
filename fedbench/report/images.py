"""Image by image: two methods' trained models on the same test images, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedbench.errors import UserError
from fedbench.report.board import Leaderboard, Row
from fedbench.report.columns import exact, heading, step
from fedbench.report.grouping import by_label, settings, unknown
from fedbench.report.headings import Place
from fedbench.report.page import Column, Kept, Page, Shown, Table, View, lines_of
from fedbench.report.pairs import probability
from fedbench.report.records import csv_text, json_text
from fedbench.report.statistics.corrections import benjamini_hochberg
from fedbench.report.statistics.images import Discordant, mcnemar, unpacked
from fedbench.report.statistics.pairs import ALPHA
from fedbench.results import Result

CSV_COLUMNS = (
    *Place._fields, "method", "other", "seed", "method_round",
    "other_round", "images", "method_alone", "other_alone", "p", "q",
)  # fmt: skip

BETTER_MODEL = "better model"
CAUTION = (
    "McNemar's exact test speaks of two trained models, not of two methods: another seed trains others. It enters no "
    "rank; `compare --pairs` compares methods, over seeds."
)


@dataclass(frozen=True)
class Models:
    """What the two models of one seed answer; rounds: after which each was tested."""

    seed: int
    rounds: tuple[int, int]
    found: Discordant
    q: float = 1.0


def view(results: Sequence[Result], boards: Sequence[Leaderboard], method: str, other: str) -> View:
    """A page for each leaderboard that has both methods, a line for each seed that both have finished.

    boards: those of the results, in their order; the rounds they show count. Raises: UserError for a method that no
    leaderboard has, where none has both, and for means over rounds, which are of no one model.
    """
    labels = [row.label for board in boards for row in board.rows]
    for name in (method, other):
        if name not in labels:
            raise UserError(unknown("method", name, labels))
    if any(board.at == "last4" for board in boards):
        raise UserError("--images compares models, and --at last4 is a mean over four of them: take --at final or best")
    tested = []
    for board, (_, group) in zip(boards, settings(results), strict=True):
        rows = {row.label: row for row in board.rows}
        if method in rows and other in rows:
            tested.append((board, *_models(by_label(group), rows[method], rows[other])))
    if not tested:
        raise UserError(f"--images: no leaderboard has both {method} and {other}")
    q = iter(benjamini_hochberg([one.found.p for _, models, _ in tested for one in models]))
    told = [
        (board, [Models(one.seed, one.rounds, one.found, next(q)) for one in models], notes)
        for board, models, notes in tested
    ]
    legend = (
        f"{method} alone, {other} alone: test images that only this model answers right; p: that either is as likely.",
        "q: p after Benjamini-Hochberg over all lines shown.",
        CAUTION,
    )
    pages = [_page(board, models, notes, method, other) for board, models, notes in told]
    found = [(board, models) for board, models, _ in told]

    def few(kept: Kept) -> Any:
        return partial(_records, lines_of(found, kept), method, other)

    return View.of(pages, legend, partial(_records, found, method, other), to_csv, to_json, few)


def _models(cells: dict[str, list[Result]], ours: Row, theirs: Row) -> tuple[list[Models], list[str]]:
    """The seeds that both have, and why one of them cannot be tested."""
    found, notes = [], []
    shared = {run.seed for run in ours.runs} & {run.seed for run in theirs.runs}
    for seed in sorted(shared):
        one, two = (_right(cells[row.method], row, seed) for row in (ours, theirs))
        if one is None or two is None:
            which = ours.label if one is None else theirs.label
            notes.append(f"seed {seed}: it is not recorded which images {which} answered right at that round")
        elif one["positions"] != two["positions"]:
            notes.append(f"seed {seed}: the two were tested on different images")
        else:
            right = [unpacked(row["bits"], row["images"]) for row in (one, two)]
            found.append(Models(seed, (one["round"], two["round"]), mcnemar(*right)))
    return found, notes if shared else ["no seed has finished for both"]


def _right(results: Sequence[Result], row: Row, seed: int) -> dict[str, Any] | None:
    """The row of right.parquet at the round that the leaderboard shows; None where there is none."""
    (run,) = [run for run in row.runs if run.seed == seed]
    result = next(r for r in results if r.entry.seed == seed and r.status == "finished")
    rows = result.right.to_pylist()
    return next((r for r in rows if r["round"] == run.round and r["output"] == row.output), None)


def _page(board: Leaderboard, models: Sequence[Models], notes: Sequence[str], method: str, other: str) -> Page:
    if not models:
        return Page(heading(board), [], notes, place=board.place)
    seen = [one.found for one in models]
    apart = [(one.ours - one.theirs) / one.images for one in seen]
    columns = [
        Column("seed", "name", [Shown(str(one.seed)) for one in models]),
        Column("images", "score", [exact(one.images, str) for one in seen]),
        Column(f"{method} alone", "score", [exact(one.ours, str) for one in seen]),
        Column(f"{other} alone", "score", [exact(one.theirs, str) for one in seen]),
        Column("difference, %", "score", [step(d, "accuracy") for d in apart], unit="points", best="high"),
        Column("p", "score", [exact(one.p, probability) for one in seen], best="low"),
        Column("q", "score", [exact(one.q, probability) for one in models], best="low"),
        Column(BETTER_MODEL, "score", [Shown(_better(one, method, other)) for one in models], left=True),
    ]
    return Page(
        heading(board), [Table(columns, f"{method} and {other} on the same test images")], notes, place=board.place
    )


def _better(one: Models, method: str, other: str) -> str:
    if one.q > ALPHA:
        return "not told"
    return method if one.found.ours > one.found.theirs else other


def _records(told: Sequence[tuple[Leaderboard, Sequence[Models]]], method: str, other: str) -> Iterator[dict[str, Any]]:
    for board, models in told:
        for one in models:
            found = one.found
            values = (method, other, one.seed, *one.rounds, found.images, found.ours, found.theirs, found.p, one.q)
            yield board.place._asdict() | dict(zip(CSV_COLUMNS[len(Place._fields) :], values, strict=True))


def to_csv(records: Any) -> str:
    """A row for every seed of every leaderboard."""
    return csv_text(CSV_COLUMNS, (list(record.values()) for record in records()))


def to_json(records: Any) -> str:
    """The rows of the CSV as objects."""
    return json_text(list(records()))
