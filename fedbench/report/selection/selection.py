"""A view with the lines and columns that are wanted: filtered, in order, in every format."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedbench.errors import UserError
from fedbench.report.page import Column, Page, Table, View
from fedbench.report.selection.condition import Condition, condition
from fedbench.report.selection.quantity import number_of
from fedbench.report.selection.records import to_csv, to_json
from fedbench.words import meant, shortened

# What tells leaderboards apart is no column of theirs; it has options of its own.
PLACES = ("suite", "scenario", "variant", "seed")
WAYS = ("asc", "desc")
# Sentences below tables that begin with no column's title, or not with that alone which they explain.
EXPLAINS = {"gap's interval": "verdict", "srv": "srv GFLOPs", "average, worst": "worst"}


@dataclass(frozen=True)
class Order:
    """way: "asc", "desc", or "" for the best first."""

    column: str
    way: str = ""


@dataclass(frozen=True)
class Selection:
    """columns: those to show beside the names, in this order; () for all. where: all must hold. sort: the first counts
    most."""

    columns: Sequence[str] = ()
    where: Sequence[Condition] = ()
    sort: Sequence[Order] = ()

    def __bool__(self) -> bool:
        return bool(self.columns or self.where or self.sort)

    def of(self, view: View) -> View:
        """The view of what is wanted. Raises: UserError for a column that none of its tables has."""
        tables = [table for page in view.pages for table in page.tables]
        for name in (*self.columns, *(one.column for one in self.where), *(one.column for one in self.sort)):
            if tables and not any(find(table.columns, name) for table in tables):
                raise _no_column(name, tables)
        kept = [[self._lines(table) for table in page.tables] for page in view.pages]
        pages = [self._page(page, lines) for page, lines in zip(view.pages, kept, strict=True)]
        left = [page for page in map(_filled, pages) if page.tables]
        alone = view.only if not self.columns else None
        texts = alone(kept) if alone else (partial(to_csv, pages), partial(to_json, pages))
        shown = {c.title for page in left for table in page.tables for c in table.columns}
        gone = {c.title for table in tables for c in table.columns} - shown
        legend = [*_about(view.legend, shown, gone), *self._told(tables, kept)]
        comments = [*_about(view.comments, shown, gone), *self._told(tables, kept)]
        return replace(view, pages=left, legend=legend, comments=comments, to_csv=texts[0], to_json=texts[1], only=None)

    def _lines(self, table: Table) -> list[int]:
        """The positions of the rows that are wanted, in order; none of a table that lacks a column to be judged by."""
        found = list(range(len(table.columns[0].cells)))
        for one in self.where:
            column = find(table.columns, one.column)
            found = [i for i in found if one.holds(column, column.cells[i])] if column else []
        for order in reversed(self.sort):
            if column := find(table.columns, order.column):
                found = _sorted(column, found, order.way)
        return found

    def _page(self, page: Page, lines: Sequence[Sequence[int]]) -> Page:
        return replace(page, tables=[self._table(*pair) for pair in zip(page.tables, lines, strict=True)])

    def _table(self, table: Table, lines: Sequence[int]) -> Table:
        columns = [replace(c, cells=[c.cells[i] for i in lines]) for c in self._wanted(table.columns)]
        faint = [place for place, i in enumerate(lines) if i in table.faint]
        return replace(table, columns=columns, faint=faint)

    def _wanted(self, columns: Sequence[Column]) -> Sequence[Column]:
        """The names, then the columns that were chosen, all of one part so that their order stays."""
        if not self.columns:
            return columns
        name, *rest = columns
        found = {c.title: c for asked in self.columns if (c := find(rest, asked))}
        return [name, *(replace(c, part="score") for c in found.values())]

    def _told(self, tables: Sequence[Table], kept: Sequence[Sequence[Sequence[int]]]) -> list[str]:
        if not self.where:
            return []
        fit = sum(len(lines) for page in kept for lines in page)
        of = sum(len(table.columns[0].cells) for table in tables)
        return [f"{fit} of {of} lines fit: {', '.join(one.asked.strip() for one in self.where)}."]


def _filled(page: Page) -> Page:
    """Without tables that nothing is left of."""
    kept = [table for table in page.tables if table.columns[0].cells and len(table.columns) > 1]
    return replace(page, tables=kept)


def selection(columns: Sequence[str], where: Sequence[str], sort: Sequence[str]) -> Selection:
    """From what was typed: names with commas between them (in quotes where a name has one), conditions, and columns to
    sort by, each perhaps with `:asc` or `:desc`. Raises: UserError."""
    names = [name.strip() for text in columns for name in next(csv.reader([text], skipinitialspace=True), [])]
    if columns and not all(names):
        raise UserError(f"--columns '{','.join(columns)}': a name is missing. Write --columns average,GFLOPs,memory")
    return Selection(names, [condition(text) for text in where], [_order(text) for text in sort])


def _order(text: str) -> Order:
    column, colon, way = text.rpartition(":")
    if colon and way.strip() in WAYS:
        return Order(column.strip(), way.strip())
    return Order(text.strip())


def find(columns: Sequence[Column], name: str) -> Column | None:
    """The column of that title or other name; letters and digits count, their case and what is between them do not."""
    for title in columns:
        if title.title == name:
            return title
    bare = _bare(name)
    found = (c for c in columns if bare and bare in map(_bare, (c.title, *c.also)))
    return next(found, None)


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _no_column(name: str, tables: Iterable[Table]) -> UserError:
    titles = list(dict.fromkeys(c.title for table in tables for c in table.columns))
    also = [other for table in tables for c in table.columns for other in c.also]
    if name.lower() in PLACES:
        told = f"it is chosen with --{name.lower()}" if name.lower() != "seed" else "lines are means over seeds"
        return UserError(f"'{name}' is no column of these tables; {told}. There are: {shortened(titles, 30)}")
    hint = meant(name, [*titles, *also], f"there are: {shortened(titles, 30)}")
    return UserError(f"no column is called '{name}' here; {hint}")


def _sorted(column: Column, lines: Sequence[int], way: str) -> list[int]:
    """Numbers first, the best of them first where nothing else is asked for; then words; blanks last."""
    numbers, words, blanks = [], [], []
    for i in lines:
        number = number_of(column, column.cells[i])
        if number is not None:
            numbers.append((number, i))
        elif column.cells[i].text:
            words.append((column.cells[i].text.lower(), i))
        else:
            blanks.append(i)
    falling = way == "desc" or (not way and column.best == "high")
    numbers.sort(key=lambda pair: -pair[0] if falling else pair[0])
    words.sort(key=lambda pair: pair[0], reverse=way == "desc")
    return [*(i for _, i in numbers), *(i for _, i in words), *blanks]


def _about(sentences: Sequence[str], shown: set[str], gone: set[str]) -> Iterator[str]:
    """Those that do not explain what is not shown: `memory: the largest ...` goes with its column."""
    for sentence in sentences:
        told, colon, _ = sentence.partition(":")
        parts = [EXPLAINS[told]] if told in EXPLAINS else [part.strip() for part in re.split(r"[,()]", told)]
        explained = set(parts) if colon else set()
        if not explained & gone or explained & shown:
            yield sentence
