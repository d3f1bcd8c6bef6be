"""Pages of tables of text: what the formats that people read are made of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.report.headings import Place

if TYPE_CHECKING:
    from fedbench.report.frames import Frame


@dataclass(frozen=True)
class Shown:
    """A cell: its text, and the spread that follows it ("±1.3")."""

    text: str
    spread: str = ""


@dataclass(frozen=True)
class Column:
    """A column of cells, one a row.

    part: "name", or the table it stands in where one is too wide. left: words, which begin below each other. bold: the
    row of the best mean.
    """

    title: str
    part: str
    cells: Sequence[Shown]
    left: bool = False
    bold: int | None = None

    @property
    def widest_spread(self) -> int:
        """Letters of the longest spread of its cells."""
        return max((len(cell.spread) for cell in self.cells), default=0)


@dataclass(frozen=True)
class Table:
    """Columns under a caption.

    warning: what to mind before reading a number. faint: rows that stand back. apart: how many rows at the top are
    ceilings, with a rule below them.
    """

    columns: Sequence[Column]
    caption: str = ""
    warning: str = ""
    faint: Collection[int] = ()
    apart: int = 0


@dataclass(frozen=True)
class Page:
    """Tables under one title.

    above: the conclusion, a sentence before the tables. Below them stand remarks, then notes, which matter more. place:
    the leaderboard that it is about.
    """

    title: str
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    remarks: Sequence[str] = ()
    place: Place | None = None
    above: str = ""


@dataclass(frozen=True)
class View:
    """A frame laid out as pages, and what stands below all of them.

    legend: sentences that explain columns. sources: papers that methods are from. shared: what all pages have in
    common.
    """

    pages: Sequence[Page]
    legend: Sequence[str]
    frame: Frame
    sources: Sequence[str] = ()
    shared: str = ""
