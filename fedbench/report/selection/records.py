"""What tables show as records for programs: a line each, where it stands, and its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedbench.report.headings import Place
from fedbench.report.page import Column, Page, Shown, Table
from fedbench.report.records import csv_text, json_text
from fedbench.report.selection.quantity import value_of


def to_csv(pages: Sequence[Page]) -> str:
    """A row for each line; the columns of all tables, those that a line lacks empty."""
    heads = _heads(pages)
    return csv_text(heads, ([record.get(head) for head in heads] for record in _records(pages)))


def to_json(pages: Sequence[Page]) -> str:
    """A list of objects, one for each line."""
    heads = _heads(pages)
    return json_text([{head: record.get(head) for head in heads} for record in _records(pages)])


def _heads(pages: Sequence[Page]) -> list[str]:
    return list(dict.fromkeys(head for page in pages for table in page.tables for head in _line(page, table, None)))


def _records(pages: Sequence[Page]) -> Iterator[dict[str, Any]]:
    for page in pages:
        for table in page.tables:
            for i in range(len(table.columns[0].cells)):
                yield _line(page, table, i)


def _line(page: Page, table: Table, i: int | None) -> dict[str, Any]:
    """Where it stands, then its columns by title; i: its position, None for the titles alone."""
    where = dict(zip(Place._fields, page.place, strict=True)) if page.place else {"page": page.title}
    if len(page.tables) > 1:
        where["table"] = table.caption
    for column in table.columns:
        where |= _values(column, where, None if i is None else column.cells[i])
    return where


def _values(column: Column, taken: dict[str, Any], cell: Shown | None) -> dict[str, Any]:
    """What a column says of a line by its whole title: one value, or both ends of an interval."""
    title = column.whole or column.title
    if column.interval:
        low, high = cell.ends if cell and cell.ends else (None, None)
        return {f"{title}, low": low, f"{title}, high": high}
    # A scenario may be a row of a table of a page that is called by another.
    return {f"{title} " if title in taken else title: cell and value_of(column, cell)}
