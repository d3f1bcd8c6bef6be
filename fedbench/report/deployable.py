"""Deployable models: what clients can run of each method's model, and how good that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from fedbench.errors import UserError
from fedbench.report.board_frames import about, page_of, score_columns, subtitle, unranked
from fedbench.report.frames import PLACE, Format, Frame, frame
from fedbench.report.grouping import by_label, settings
from fedbench.report.leaderboards import Leaderboard, Row, concluded, ordered
from fedbench.report.run_scores import Run, Score, score
from fedbench.report.significance import legend_of_groups
from fedbench.results import Result
from fedbench.results.metric_direction import higher_is_better
from fedbench.results.scores import average
from fedbench.types import Size

NOT_SCORED = "not scored at sizes: its suite has no `evaluation: {sizes: true}`"
NONE_SCORED = "no model here was scored at sizes.\nSay `evaluation: {sizes: true}` in the suite and run it again."

KINDS = {"layers": "capacity", "rank": "rank", "width": "width"}  # by what sizes differ, and the name of that in `Size`
LEGEND = (
    "deployable: mean over clients of the largest size that each can run, by the method's own rule, on the test images "
    "of its domain, or its own where clients are tested; a client that can run nothing counts 0. worst: its worst "
    "client.",
    "run any, run largest: the share of clients that can run a size at all, and the largest, which is the model that "
    "other tables score (model).",
    "By size: on all test images, and the memory to answer one image.",
)


@dataclass(frozen=True)
class AtSize:
    """A method's model at a size. memory: bytes to answer one image, the largest of any seed, None where nobody knows ·
    alone: whether a device can answer with it without the server · run_by: how many clients run it, the mean over
    seeds."""

    score: Score
    memory: int | None
    alone: bool
    run_by: float


@dataclass(frozen=True)
class Deployed:
    """A row of a leaderboard whose average is `deployable`, the mean over clients of what each can run, a client that
    can run nothing counting 0, and whose worst is that of a client.

    whole: the score of the one model that leaderboards show · can, largest: the share of clients that can run anything,
    and the largest size · by_device: the mean over the clients of each device, None where none can run anything.
    """

    row: Row
    whole: Score | None
    can: float | None
    largest: float | None
    sizes: Mapping[Size, AtSize]
    by_device: Mapping[str, float | None]


@dataclass(frozen=True)
class Client:
    """What one client can run in one cell. size, value: None for nothing."""

    client: int
    domain: str
    device: str
    size: Size | None
    value: float | None


def deployed(
    results: Sequence[Result], boards: Sequence[Leaderboard], equivalent: float | None = None
) -> list[tuple[Leaderboard, list[Deployed]]]:
    """The leaderboards of what is deployable, in the order of `boards`, those of the results, and their rows.

    Raises: UserError where no result was scored at sizes.
    """
    cells = [by_label(group) for _, group in settings(results)]
    drawn = [_board(board, known) for board, known in zip(boards, cells, strict=True)]
    if not any(row.runs for board in drawn for row in board.rows):
        raise UserError(NONE_SCORED)
    return [
        (found, [_deployed(row, before, known[row.method]) for row, before in zip(found.rows, board.rows, strict=True)])
        for found, board, known in zip(concluded(drawn, equivalent), boards, cells, strict=True)
    ]


def _board(board: Leaderboard, cells: Mapping[str, Sequence[Result]]) -> Leaderboard:
    """The same with what is deployable in place of what the one model scores."""
    rows = [_row(row, cells[row.method]) for row in board.rows]
    without = [row.label for row, before in zip(rows, board.rows, strict=True) if before.runs and not row.runs]
    notes = [*board.notes, *([f"{', '.join(without)}: {NOT_SCORED}"] if without else [])]
    return replace(board, rows=rows, notes=notes, pairs=(), baseline=None)


def _row(row: Row, results: Sequence[Result]) -> Row:
    runs = [run for r in results if r.status == "finished" and (run := _run(r, row.metric))]
    return replace(
        row,
        runs=tuple(runs),
        domains={},
        average=score([run.average for run in runs]) if runs else None,
        worst=score([run.worst for run in runs]) if runs else None,
        spread=None,
        worst_clients=None,
    )


def _run(result: Result, metric: str) -> Run | None:
    """None where the cell was not scored at sizes; and of a loss, whose best is 0, where a client can run nothing."""
    found, higher = clients_of(result, metric), higher_is_better(metric)
    if not found or not (higher or all(one.size for one in found)):
        return None
    clients = {(one.domain, one.client): one.value or 0.0 for one in found}
    values = list(clients.values())
    worst = (min if higher else max)(values)
    return Run(result.entry.seed, result.deployed["round"][0].as_py(), clients, {}, float(np.mean(values)), worst)


def clients_of(result: Result, metric: str) -> list[Client]:
    """What every client can run, as far as it has test images; empty where the cell was not scored at sizes."""
    found = []
    for row in result.deployed.to_pylist():
        if row["metric"] == metric:
            runs = row["capacity"] is not None
            size = Size(row["capacity"], row["rank"], row["width"]) if runs else None
            found.append(Client(row["client"], row["domain"], row["device"], size, row["value"] if runs else None))
    return found


def _deployed(row: Row, before: Row, results: Sequence[Result]) -> Deployed:
    done = [r for r in results if r.status == "finished" and len(r.sizes)]
    clients = [clients_of(r, row.metric) for r in done]
    sizes = [_sizes(r, row.metric) for r in done]
    everyone = [one for seed in clients for one in seed]
    return Deployed(
        row,
        before.average,
        _share(one.size is not None for one in everyone),
        _share(
            one.size == max(known, key=attrgetter("order"))
            for seed, known in zip(clients, sizes, strict=True)
            for one in seed
        ),
        {
            size: _at(size, sizes, clients)
            for size in sorted({s for known in sizes for s in known}, key=attrgetter("order"))
        },
        {device: _of_device(device, everyone) for device in sorted({one.device for one in everyone} - {""})},
    )


def _of_device(device: str, everyone: Iterable[Client]) -> float | None:
    values = [one.value for one in everyone if one.device == device]
    if all(value is None for value in values):
        return None
    return float(np.mean([value or 0.0 for value in values]))


def _share(told: Iterable[bool]) -> float | None:
    found = list(told)
    return sum(found) / len(found) if found else None


def _sizes(result: Result, metric: str) -> dict[Size, tuple[float, int | None, bool]]:
    """By size: the average over domains or clients of what the model scores, its memory, and whether it runs alone."""
    values: dict[Size, dict[tuple[str, int], float]] = {}
    facts: dict[Size, tuple[int | None, bool]] = {}
    for row in result.sizes.to_pylist():
        if row["metric"] == metric:
            size = Size(row["capacity"], row["rank"], row["width"])
            values.setdefault(size, {})[row["domain"], row["client"]] = row["value"]
            facts[size] = row["memory_bytes"], row["alone"]
    return {size: (average(own), *facts[size]) for size, own in values.items()}


def _at(
    size: Size, seeds: Sequence[Mapping[Size, tuple[float, int | None, bool]]], clients: Sequence[Sequence[Client]]
) -> AtSize:
    found = [known[size] for known in seeds if size in known]
    memory = [bytes for _, bytes, _ in found if bytes is not None]
    run_by = sum(one.size == size for seed in clients for one in seed) / len(seeds)
    return AtSize(
        score([value for value, *_ in found]), max(memory, default=None), all(alone for *_, alone in found), run_by
    )


def deployable(results: Sequence[Result], boards: Sequence[Leaderboard], equivalent: float | None = None) -> Frame:
    """A row for each method: the mean over clients of what each can run, by device and by size.

    Columns: as of a leaderboard, where mean is that of what is deployable; worst, run_any, run_largest (shares of the
    clients), model (the score of the whole model), `on DEVICE`, and for each size such as `layers 4` the score, with
    `memory` and `clients` (how many run it) after its name.

    Raises:
        UserError: where no result was scored at sizes.
    """
    found = deployed(results, boards, equivalent)
    rows, formats, pages = [], dict[str, Format](), []
    for board, ones in found:
        place = {one.row.label: one for one in ones}
        here = [place[row.label] for row in ordered(board)]
        rows += [_columns(board, one, formats) for one in here]
        helped = [one.row.label for one in ones if one.sizes and not any(size.alone for size in one.sizes.values())]
        facts = page_of(board, f"deployable · {subtitle(board)}")
        facts["notes"] += [f"{', '.join(helped)}: no client can answer without the server"] if helped else []
        pages.append(facts)
    legend = [*LEGEND]
    boards = [board for board, _ in found]
    if any(row.group for board in boards for row in board.rows):
        legend.append(legend_of_groups(unranked(boards)))
    names = ("mean", "std", "group", "ci_low", "ci_high", "n_seeds", "worst", "run_any", "run_largest", "model")
    order = sorted(formats, key=lambda name: list(PARTS).index(formats[name].part or "memory"))
    return frame(
        rows,
        (*PLACE, "method", "role", "status", *names, *order),
        caption="What clients can run of each method's model",
        pages=pages,
        formats={
            "mean": Format("deployable", "score", "metric"),
            "run_any": Format("run any", "share", "high"),
            "run_largest": Format("run largest", "share", "high"),
            "model": Format("model", "score", "metric"),
            "role": Format(part=""),
            **formats,
        },
        legend=legend,
        parts=PARTS,
        **about(boards),
    )


PARTS = {
    "score": "",
    "device": "mean over the clients of each device",
    **{f"by {kind}": f"by {kind}" for kind in KINDS},
    **{f"by {kind}: memory": f"by {kind}: memory to answer one image" for kind in KINDS},
    "memory": "",
}


def _columns(board: Leaderboard, one: Deployed, formats: dict[str, Format]) -> dict[str, Any]:
    """One row; formats gets those of its devices and sizes."""
    row = one.row
    status = "" if row.status == "finished" and not row.runs else row.status
    found: dict[str, Any] = {**board.place._asdict(), "method": row.label, "role": row.role, "status": status}
    found |= {**score_columns(row.average), "group": row.group, "n_seeds": len(row.runs), "ranked": row.ranked}
    found |= {"worst": row.worst.mean if row.worst else None, "run_any": one.can, "run_largest": one.largest}
    found["model"] = one.whole.mean if one.whole else None
    for device, mean in one.by_device.items():
        formats[f"on {device}"] = Format(device, "score", "metric", "device")
        found[f"on {device}"] = mean
    for size, at in one.sizes.items() if any(at.alone for at in one.sizes.values()) else ():
        kind = "width" if size.width is not None else "rank" if size.rank is not None else "layers"
        value = f"{getattr(size, KINDS[kind]):g}"
        name = f"{kind} {value}"
        formats[name] = Format(value, "score", "metric", f"by {kind}")
        formats[f"{name} memory"] = Format(value, "bytes", "low", f"by {kind}: memory")
        formats[f"{name} clients"] = Format(f"{name}, clients", "decimal", "high", "")
        found |= {name: at.score.mean, f"{name} memory": at.memory, f"{name} clients": at.run_by}
    return found
