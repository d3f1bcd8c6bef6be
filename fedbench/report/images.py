"""Test images: two methods' trained models on the same images, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedbench.errors import UserError
from fedbench.report.frames import PLACE, Format, Frame, frame, page
from fedbench.report.grouping import unknown
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.statistics.paired import mcnemar, unpacked
from fedbench.report.statistics.pairs import ALPHA, INCONCLUSIVE, benjamini_hochberg

CAUTION = (
    "McNemar's exact test compares two trained models, not two methods: another seed trains others. It enters no "
    "rank; `compare pairs` compares methods, over seeds."
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


def images(boards: Sequence[Leaderboard], method: str, other: str) -> Frame:
    """A row for each seed that both methods have finished: the images that only one model answers right.

    Args:
        boards: leaderboards; the rounds they show count.
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
        raise UserError(
            "compare images is of models, and --at last4 is a mean over four of them: take --at final or best"
        )
    rows, pages = [], []
    title = f"{method} and {other} on the same test images"
    for board in boards:
        both = {row.label: row for row in board.rows if row.label in (method, other)}
        if len(both) == len({method, other}):
            notes: list[str] = []
            rows += list(_seeds(board, both[method], both[other], notes))
            pages.append(page(board.place, caption=title, warning=board.warning, notes=notes))
    if not pages:
        raise UserError(f"no leaderboard has both {method} and {other}")
    for row, q in zip(rows, benjamini_hochberg([row["p"] for row in rows]), strict=True):
        better = method if row["difference"] > 0 else other
        row |= {"q": q, "better_model": INCONCLUSIVE if q > ALPHA else better}
    legend = [
        f"{method} alone, {other} alone: test images that only this model answers right; p: that either is as likely.",
        "q: p after Benjamini-Hochberg over all lines shown.",
        CAUTION,
    ]
    alone = {"method_alone": Format(f"{method} alone", "int"), "other_alone": Format(f"{other} alone", "int")}
    return frame(
        rows,
        COLUMNS,
        caption=title,
        pages=pages,
        formats={**FORMATS, **alone},
        legend=legend,
        metric="accuracy",
        correction="Benjamini-Hochberg over all lines",
    )


def _seeds(board: Leaderboard, ours: Row, theirs: Row, notes: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each seed that both have; notes get why one of them cannot be tested."""
    shared = {run.seed for run in ours.runs} & {run.seed for run in theirs.runs}
    if not shared:
        notes.append("no seed has finished for both")
    for seed in sorted(shared):
        one, two = _right(ours, seed), _right(theirs, seed)
        if one is None or two is None:
            which = ours.label if one is None else theirs.label
            notes.append(f"seed {seed}: it is not recorded which images {which} answered right at that round")
        elif one["positions"] != two["positions"]:
            notes.append(f"seed {seed}: the two were tested on different images")
        else:
            found = mcnemar(*(unpacked(row["bits"], row["images"]) for row in (one, two)))
            names = {"seed": seed, "method": ours.label, "other": theirs.label}
            rounds = {"method_round": one["round"], "other_round": two["round"]}
            counts = {"images": found.images, "method_alone": found.ours, "other_alone": found.theirs}
            tested = {"difference": (found.ours - found.theirs) / found.images, "p": found.p}
            yield {**board.place._asdict(), **names, **rounds, **counts, **tested}


def _right(row: Row, seed: int) -> dict[str, Any] | None:
    """The row of right.parquet at the round that the leaderboard shows; None where there is none."""
    (run,) = [run for run in row.runs if run.seed == seed]
    rows = row.finished[seed].table("right").to_pylist()
    return next((r for r in rows if r["round"] == run.round and r["output"] == row.output), None)
