"""What clients can run of the models, method by method: numbers of sizes.parquet and deployed.parquet over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from fedbench.errors import UserError
from fedbench.report.board import Leaderboard, Row
from fedbench.report.evidence import concluded
from fedbench.report.grouping import by_label, settings
from fedbench.report.measures import Run, Score, score
from fedbench.results import Result
from fedbench.results.choice import higher_is_better
from fedbench.results.scores import average
from fedbench.types import Size

NOT_SCORED = "not scored at sizes: its suite has no `evaluation: {sizes: true}`"
NONE_SCORED = "no model here was scored at sizes.\nSay `evaluation: {sizes: true}` in the suite and run it again."


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
