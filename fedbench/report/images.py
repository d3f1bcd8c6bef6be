"""Test images: two methods' trained models on the same images, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.errors import UserError
from fedbench.report.frames import PLACE, Format, Frame, frame, page
from fedbench.report.grouping import by_label, settings, unknown
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.statistics.paired import Discordant, mcnemar, unpacked
from fedbench.report.statistics.pairs import ALPHA, INCONCLUSIVE, benjamini_hochberg
from fedbench.results import Result

CAUTION = (
    "McNemar's exact test compares two trained models, not two methods: another seed trains others. It enters no "
    "rank; `compare --pairs` compares methods, over seeds."
)


COLUMNS = (
    *PLACE, "seed", "method", "other", "method_round", "other_round", "images", "method_alone", "other_alone",
    "difference", "p", "q", "better_model",
)  # fmt: skip
FORMATS = {
    "seed": Format("seed", "int", part="name"),
    **dict.fromkeys(("method", "other", "method_round", "other_round"), Format(part="")),
    "images": Format("images", "int"),
    "difference": Format("difference, %", "points", "high"),
    "better_model": Format("better model", left=True),
}


@dataclass(frozen=True)
class Models:
    """What the two models of one seed answer; rounds: after which each was tested."""

    seed: int
    rounds: tuple[int, int]
    found: Discordant


def images(results: Sequence[Result], boards: Sequence[Leaderboard], method: str, other: str) -> Frame:
    """A row for each seed that both methods have finished: the images that only one model answers right.

    Args:
        results: those that the leaderboards are of.
        boards: leaderboards, in the order of the results' settings; the rounds they show count.
        method: a method's label.
        other: another one.

    Raises:
        UserError: for a method that no leaderboard has, where none has both, and for means over rounds.
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
    title = f"{method} and {other} on the same test images"
    legend = [
        f"{method} alone, {other} alone: test images that only this model answers right; p: that either is as likely.",
        "q: p after Benjamini-Hochberg over all lines shown.",
        CAUTION,
    ]
    alone = {"method_alone": Format(f"{method} alone", "int"), "other_alone": Format(f"{other} alone", "int")}
    return frame(
        [_columns(board, one, next(q), method, other) for board, models, _ in tested for one in models],
        COLUMNS,
        caption=title,
        pages=[page(board.place, caption=title, notes=notes) for board, _, notes in tested],
        formats={**FORMATS, **alone},
        legend=legend,
        metric="accuracy",
        correction="Benjamini-Hochberg over all lines",
    )


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


def _columns(board: Leaderboard, one: Models, q: float, method: str, other: str) -> dict[str, Any]:
    found = one.found
    rounds = {"method_round": one.rounds[0], "other_round": one.rounds[1]}
    counts = {"images": found.images, "method_alone": found.ours, "other_alone": found.theirs}
    better = INCONCLUSIVE if q > ALPHA else method if found.ours > found.theirs else other
    tested = {"difference": (found.ours - found.theirs) / found.images, "p": found.p, "q": q, "better_model": better}
    return {**board.place._asdict(), "seed": one.seed, "method": method, "other": other, **rounds, **counts, **tested}
