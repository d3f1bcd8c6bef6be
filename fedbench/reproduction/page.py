"""What a reproduction shows: what is not the same here, and each cell with its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from fedbench.report.changes.settings import cut
from fedbench.report.columns import number
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.records import csv_text, json_text
from fedbench.reproduction.again import Mismatch
from fedbench.reproduction.verdict import NOT_RUN, ORDER, Verdict
from fedbench.words import counted, shortened

MOST = 40  # lines of cells; csv and json have all
CSV_COLUMNS = (
    "suite", "scenario", "variant", "method", "seed", "id", "verdict", "metric", "there", "here", "difference", "noise",
    "reason",
)  # fmt: skip

LEGEND = (
    "equal: every score of every evaluated round to the bit, and bytes and FLOPs.",
    "within noise: farther apart than two seeds of a method are by chance is none of its scores; noise: how far that "
    "is, from the seeds of the source.",
    "different: beyond that, or other bytes or FLOPs, which no seed changes.",
)


def before(source: str, cells: int, found: Sequence[Mismatch], lacking: Sequence[tuple[str, str]]) -> View:
    """What is not the same here, told before anything runs."""
    page = _settings_page(source, cells, found, lacking)
    record = {"source": source, "cells": cells, "differs_here": [vars(one) for one in found]}
    record["cannot_run"] = [{"cell": title, "reason": reason} for title, reason in lacking]
    rows = [(one.what, one.there, one.here, one.cells) for one in found]
    heads = ("what", "there", "here", "cells")
    return View([page], [], lambda: csv_text(heads, rows), lambda: json_text(record))


def after(found: Sequence[Verdict], settings: Sequence[Mismatch]) -> View:
    """Each cell with its verdict."""
    counts = Counter(one.called for one in found)
    told = ", ".join(f"{counts[name]} {name}" for name in ORDER[::-1] if counts[name])
    tables = [Table(_columns(found[:MOST]))] if found else []
    more = [f"{counted(len(found) - MOST, 'more cell')}: csv and json have all"] if len(found) > MOST else []
    page = Page(f"{counted(len(found), 'cell')}: {told}", tables, _reasons(found), more)
    return View([page], LEGEND, partial(_csv, found), partial(_json, found, settings), comments=LEGEND)


def _settings_page(source: str, cells: int, found: Sequence[Mismatch], lacking: Sequence[tuple[str, str]]) -> Page:
    columns = [
        Column("differs here", "name", [Shown(one.what) for one in found], least=20),
        Column("there", "score", [Shown(cut(one.there)) for one in found], left=True),
        Column("here", "score", [Shown(cut(one.here)) for one in found], left=True),
        Column("in", "score", [Shown(f"{one.cells} of {cells}") for one in found]),
    ]
    same = [] if found else ["versions, data, weights, processor and Python are those of the source"]
    by_reason: dict[str, list[str]] = {}
    for title, reason in lacking:
        by_reason.setdefault(reason, []).append(title)
    notes = [f"cannot run here: {shortened(titles, 3)}: {reason}" for reason, titles in by_reason.items()]
    return Page(f"{source}: {counted(cells, 'cell')}", [Table(columns)] if found else [], notes, same)


def _columns(found: Sequence[Verdict]) -> list[Column]:
    def shown(values: Sequence[float | None], signed: bool = False) -> list[Shown]:
        pairs = zip(found, values, strict=True)
        return [Shown("" if value is None else number(value, one.metric, signed), value=value) for one, value in pairs]

    columns = [
        Column("cell", "name", [Shown(one.cell.title) for one in found], least=24),
        Column("verdict", "score", [Shown(one.called) for one in found], left=True),
    ]
    if len({one.metric for one in found if one.metric}) > 1:
        columns.append(Column("metric", "score", [Shown(one.metric) for one in found], left=True))
    return [
        *columns,
        Column("there", "score", shown([one.there_value for one in found])),
        Column("here", "score", shown([one.here_value for one in found])),
        Column("difference", "score", shown([one.difference for one in found], signed=True), least=10),
        Column("noise", "score", shown([one.bound for one in found])),
    ]


def _reasons(found: Sequence[Verdict]) -> list[str]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in found:
        if one.reason:
            by_reason.setdefault((one.called, one.reason), []).append(one.cell.title)
    return [f"{called}: {shortened(titles, 3)}: {why}" for (called, why), titles in by_reason.items()]


def _record(one: Verdict) -> dict[str, Any]:
    cell = one.cell
    told = (*cell.name, cell.id, one.called, one.metric, one.there_value, one.here_value, one.difference, one.bound)
    return dict(zip(CSV_COLUMNS, (*told, one.reason), strict=True))


def _csv(found: Sequence[Verdict]) -> str:
    return csv_text(CSV_COLUMNS, ([*_record(one).values()] for one in found))


def _json(found: Sequence[Verdict], settings: Sequence[Mismatch]) -> str:
    counts = Counter(one.called for one in found)
    same = all(one.called not in (ORDER[0], NOT_RUN) for one in found)
    record = {"reproduced": same, "counts": counts, "differs_here": [vars(one) for one in settings]}
    return json_text({**record, "cells": [_record(one) for one in found]})
