"""What people read, before it has a format: pages of tables of shown cells, and the view that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from fedbench.report.headings import Place, headings

T = TypeVar("T")
U = TypeVar("U")


Kept = Sequence[Sequence[Sequence[int]]]  # lines: by page, then by table, their positions


@dataclass(frozen=True)
class Shown:
    """text is the number, spread what follows it ("±1.3"); value: the number itself, where a filter is to have it whole
    (a fraction, bytes, seconds). ends: of an interval, likewise. whole: the text, where that on the page is short."""

    text: str
    spread: str = ""
    value: float | None = None
    ends: tuple[float, float] | None = None
    whole: str = ""


@dataclass(frozen=True)
class Column:
    """cells has one entry a row. part is "name", "score", "gap", "cost" or "budget", which stands with scores or costs.
    least: how many letters of the title, or of names, must stay where room is short. left: words, which begin below
    each other. unit: of the values, where they have one: "%" and "points" (of percent) of fractions, "bytes", "joules",
    "flops", "seconds". best: "high" or "low", where one of them is better. also: other names that it may be asked for
    by. interval: whether cells have ends. whole: the title, where that on the page is short."""

    title: str
    part: str
    cells: Sequence[Shown]
    least: int = 5
    left: bool = False
    unit: str = ""
    best: str = ""
    also: Sequence[str] = ()
    interval: bool = False
    whole: str = ""

    @cached_property
    def widest_spread(self) -> int:
        """Letters of the longest spread of its cells."""
        return max((len(cell.spread) for cell in self.cells), default=0)


@dataclass(frozen=True)
class Table:
    """Columns, the first of them names, under a caption. warning: what to mind before reading a number; faint: the
    positions of rows that stand back."""

    columns: Sequence[Column]
    caption: str = ""
    warning: str = ""
    faint: Collection[int] = ()


@dataclass(frozen=True)
class Page:
    """Tables under one title. Below them remarks, which are good to know, then notes, which should not be missed.
    place: of the leaderboard that it is about, where it is about one."""

    title: str
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    remarks: Sequence[str] = ()
    place: Place | None = None


@dataclass(frozen=True)
class View:
    """What a command prints in every format: pages for people, and for programs what makes the text of CSV and JSON.

    legend: what the columns mean, a sentence each, once below all pages; `between` parts them in Markdown, and LaTeX
    has `comments` in their place. sources: which papers the methods are from, for papers that are written with them.
    shared: what all pages are about, above them. only: CSV and JSON of some lines alone; None where they have no such
    form.
    """

    pages: Sequence[Page]
    legend: Sequence[str]
    to_csv: Callable[[], str]
    to_json: Callable[[], str]
    between: str = " "
    comments: Sequence[str] = ()
    sources: Sequence[str] = ()
    shared: str = ""
    only: Callable[[Kept], tuple[Callable[[], str], Callable[[], str]]] | None = None

    @classmethod
    def of(
        cls,
        pages: Sequence[Page],
        legend: Sequence[str],
        found: T,
        to_csv: Callable[[T], str],
        to_json: Callable[[T], str],
        few: Callable[[Kept], T],
    ) -> View:
        """A view whose CSV and JSON are made of what was found, and of some lines alone of what `few` leaves of it."""

        def texts(some: T) -> tuple[Callable[[], str], Callable[[], str]]:
            return partial(to_csv, some), partial(to_json, some)

        return cls(pages, legend, *texts(found), comments=legend, only=lambda kept: texts(few(kept)))

    def named(self) -> View:
        """With what the leaderboards of several pages share said once, above them."""
        places = [page.place for page in self.pages if page.place]
        if len(set(places)) < 2 or len(places) < len(self.pages):
            return self
        told = headings(list(dict.fromkeys(places)))
        titles = dict(zip(dict.fromkeys(places), told.titles, strict=True))
        pages = [replace(page, title=titles[page.place]) for page in self.pages if page.place]
        return replace(self, pages=pages, shared=told.shared)


def names(pages: Sequence[Page], kept: Kept) -> list[list[str]]:
    """By page, what begins any of the lines that are kept, each name once."""
    return [
        list(dict.fromkeys(t.columns[0].cells[i].text for t, at in zip(page.tables, lines, strict=True) for i in at))
        for page, lines in zip(pages, kept, strict=True)
    ]


def lines_of(found: Sequence[tuple[T, Sequence[U]]], kept: Kept) -> list[tuple[T, list[U]]]:
    """What stands in the lines that are kept, of pages with a table at most."""
    return [
        (what, [rows[i] for lines in tables for i in lines]) for (what, rows), tables in zip(found, kept, strict=True)
    ]
