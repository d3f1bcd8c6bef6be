"""Methods and sizes: what clients can run of each method's model, and how good that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedbench.report.absences import ABSENCES, DASH
from fedbench.report.board import Leaderboard
from fedbench.report.columns import (
    exact,
    heading,
    intervals,
    point,
    scored,
    spread,
    subtitle,
)  # fmt: skip
from fedbench.report.deployed import AtSize, Deployed, deployed
from fedbench.report.headings import Place
from fedbench.report.legends import CONDITIONS, left_out, too_few
from fedbench.report.measures import Score
from fedbench.report.page import Column, Kept, Page, Shown, Table, View, names
from fedbench.report.records import csv_text, json_text
from fedbench.results import Result
from fedbench.types import Size
from fedbench.words import human_bytes

CSV_COLUMNS = (
    *Place._fields, "method", "metric", "what", "capacity", "rank", "width", "device", "memory_bytes", "alone",
    "clients", "mean", "std", "n_seeds", "low", "high", "interval", "group",
)  # fmt: skip

KINDS = {"layers": "capacity", "rank": "rank", "width": "width"}  # by what sizes differ, and the name of that in `Size`
MOST = 8  # sizes in a table

LEGEND = (
    "deployable: mean over clients of the largest size that each can run, by the method's own rule, on the test images "
    "of its domain, or its own where clients are tested; a client that can run nothing counts 0. worst: its worst "
    "client.",
    "run any, run largest: clients that can run a size at all, and the largest, which is the model that other tables "
    "score (model).",
    "By size: on all test images; of many sizes those that clients run and some more. A dash: there is no such model.",
)


def view(results: Sequence[Result], boards: Sequence[Leaderboard], equivalent: float | None = None) -> View:
    """A page for each leaderboard. boards: those of the results. Raises: UserError where no result was scored at
    sizes."""
    found = deployed(results, boards, equivalent)
    legend = [*LEGEND]
    if any(row.group for board, _ in found for row in board.rows):
        told = f"group: methods that share a letter are not told apart (paired t-tests, {CONDITIONS})."
        legend.append(told + left_out([board for board, _ in found]))
    pages = [_page(board, rows) for board, rows in found]

    def few(kept: Kept) -> list[tuple[Leaderboard, list[Deployed]]]:
        left = []
        for (board, rows), labels in zip(found, names(pages, kept), strict=True):
            by_label = {one.row.label: one for one in rows}
            left.append((board, [by_label[label] for label in labels]))
        return left

    return View.of(pages, legend, found, _to_csv, _to_json, few)


def _to_csv(found: Sequence[tuple[Leaderboard, Sequence[Deployed]]]) -> str:
    return csv_text(CSV_COLUMNS, (tuple(one[name] for name in CSV_COLUMNS) for one in _records(found)))


def _to_json(found: Sequence[tuple[Leaderboard, Sequence[Deployed]]]) -> str:
    return json_text(list(_records(found)))


def _page(board: Leaderboard, rows: Sequence[Deployed]) -> Page:
    faint = [i for i, one in enumerate(rows) if one.row.output]
    tables = [Table(_columns(board, rows), f"deployable · {subtitle(board)}", faint=faint)]
    if devices := list(dict.fromkeys(device for one in rows for device in one.by_device)):
        tables.append(Table(_by_device(rows, devices), "mean over the clients of each device"))
    there = [one for one in rows if any(size.alone for size in one.sizes.values())]
    for kind in KINDS:
        own = [one for one in there if any(_kind(size) == kind for size in one.sizes)]
        if shown := _shown(own, kind):
            scores = _by_size(own, kind, shown, _value(board), **scored(board.metric))
            memory = _by_size(own, kind, shown, _memory, unit="bytes", best="low")
            tables += [Table(scores, f"by {kind}"), Table(memory, f"by {kind}: memory to answer one image")]
    helped = [one.row.label for one in rows if one.sizes and one not in there]
    notes = [*board.notes, *too_few(board)]
    notes += [f"{', '.join(helped)}: no client can answer without the server"] if helped else []
    return Page(heading(board), tables, notes, place=board.place)


def _columns(board: Leaderboard, rows: Sequence[Deployed]) -> list[Column]:
    facts = scored(board.metric)

    def plain(title: str, values: Sequence[Score | None]) -> Column:
        return Column(title, "score", [point(value.mean if value else None, board.metric) for value in values], **facts)

    def shares(title: str, values: Sequence[float | None]) -> Column:
        cells = [exact(value, lambda share: f"{100 * share:.0f} %") for value in values]
        return Column(title, "score", cells, least=len(title), unit="%", best="high")

    names = Column("method", "name", [Shown(one.row.label) for one in rows])
    found = [names, Column("deployable", "score", [_average(one) for one in rows], **facts)]
    if any(one.row.average and one.row.average.interval for one in rows):
        found.append(intervals([one.row for one in rows]))
    if any(one.row.group for one in rows):
        found.append(Column("group", "score", [Shown(one.row.group) for one in rows], left=True))
    return [
        *found,
        plain("worst", [one.row.worst for one in rows]),
        shares("run any", [one.can for one in rows]),
        shares("run largest", [one.largest for one in rows]),
        plain("model", [one.whole for one in rows]),
    ]


def _average(one: Deployed) -> Shown:
    value = one.row.average
    if value is None:
        return Shown("" if one.row.status == "finished" else (ABSENCES[one.row.status].short or DASH))
    return spread(value, one.row.metric)


def _by_device(rows: Sequence[Deployed], devices: Sequence[str]) -> list[Column]:
    there = [one for one in rows if one.by_device]
    found = [Column("method", "name", [Shown(one.row.label) for one in there])]
    for device in devices:
        cells = [point(one.by_device.get(device), one.row.metric, DASH) for one in there]
        found.append(Column(device, "score", cells, least=7, **scored(there[0].row.metric)))
    return found


def _kind(size: Size) -> str:
    return "width" if size.width is not None else "rank" if size.rank is not None else "layers"


def _shown(rows: Sequence[Deployed], kind: str) -> list[float]:
    """The sizes of a kind that are columns: those that a client runs, the ends, and others evenly between them."""
    found = [(size, at.run_by) for one in rows for size, at in one.sizes.items() if _kind(size) == kind]
    sizes = [(getattr(size, KINDS[kind]), by) for size, by in found]
    every = sorted({value for value, _ in sizes})
    if len(every) <= MOST:
        return every
    run = dict.fromkeys([every[0], every[-1], *sorted(value for value, by in sizes if by)])
    even = [every[round(i * (len(every) - 1) / (MOST - 1))] for i in range(MOST)]
    return sorted([*run, *(value for value in even if value not in run)][:MOST])


def _by_size(
    rows: Sequence[Deployed],
    kind: str,
    shown: Sequence[float],
    show: Callable[[AtSize], Shown],
    **facts: Any,
) -> list[Column]:
    """facts: of the columns, for filters."""

    def cell(one: Deployed, value: float) -> Shown:
        sizes = {getattr(size, KINDS[kind]): at for size, at in one.sizes.items() if _kind(size) == kind}
        return show(sizes[value]) if value in sizes else Shown(DASH)

    names = Column("method", "name", [Shown(one.row.label) for one in rows])
    return [names, *(Column(f"{value:g}", "score", [cell(one, value) for one in rows], **facts) for value in shown)]


def _value(board: Leaderboard) -> Callable[[AtSize], Shown]:
    return lambda at: point(at.score.mean, board.metric)


def _memory(at: AtSize) -> Shown:
    return exact(at.memory, human_bytes, DASH)


def _records(found: Sequence[tuple[Leaderboard, Sequence[Deployed]]]) -> Iterator[dict[str, Any]]:
    """A record for what is deployable and its worst, for the shares, for every device and every size."""
    for board, rows in found:
        where = board.place._asdict()
        for one in rows:
            blank = dict.fromkeys(CSV_COLUMNS) | where | {"method": one.row.method, "metric": one.row.metric}
            for what, value in (("deployable", one.row.average), ("deployable_worst", one.row.worst)):
                if value:
                    yield blank | {"what": what, **_told(value), "group": one.row.group}
            for what, share in (("can_run", one.can), ("can_run_largest", one.largest)):
                if share is not None:
                    yield blank | {"what": what, "mean": share, "n_seeds": len(one.row.runs)}
            for device, mean in one.by_device.items():
                yield blank | {"what": "device", "device": device, "mean": mean, "n_seeds": len(one.row.runs)}
            for size, at in one.sizes.items():
                facts = {"memory_bytes": at.memory, "alone": at.alone, "clients": at.run_by}
                parts = {"capacity": size.capacity, "rank": size.rank, "width": size.width}
                yield blank | {"what": "size", **parts, **facts, **_told(at.score)}


def _told(value: Score) -> dict[str, Any]:
    around = {"low": value.low, "high": value.high, "interval": value.interval}
    return {"mean": value.mean, "std": value.std, "n_seeds": value.n, **around}
