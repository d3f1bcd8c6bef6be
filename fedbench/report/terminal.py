"""Views on a terminal, in as many tables as its width needs; readable without colour."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fedbench.report.page import Column, Shown, View
from fedbench.words import clipped, told_apart

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

GAP = 1  # blanks between two columns, at least
NAME = 24  # letters of a name that it takes no more than, whatever tells it from others


def show(view: View, console: Console) -> None:
    """Print every page, its remarks and notes below it, and once at the end what the columns mean."""
    from rich.text import Text

    if view.shared:
        console.print(Text(view.shared, style="bold"))
        console.print()
    for page in view.pages:
        console.print(Text(page.title, style="bold"))
        for table in page.tables:
            for text, style in ((table.caption, "dim"), (table.warning, "yellow")):
                if text:
                    console.print(Text(text, style=style))
            for columns in _fitting(table.columns, console.width):
                console.print(_table(columns, [c.title for c in table.columns], table.faint, console))
                console.print()
        for note in page.remarks:
            console.print(_indented(note, "dim"))
        for note in page.notes:
            console.print(_indented(note, "yellow"))
        if page.remarks or page.notes:
            console.print()
    for sentence in view.legend:
        console.print(_indented(sentence, "dim"))


def _indented(text: str, style: str) -> Padding:
    """A sentence below a table."""
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text, style=style), (0, 0, 0, 1), expand=False)


def _fitting(found: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns in tables that fit: all in one, else scores, gaps and costs apart, else these too.

    Titles and names are shortened before a table is split further; numbers never are.
    """
    name, *rest = found
    if _natural([name, *rest]) <= width:
        return [[name, *rest]]
    split = []
    scores = [column for column in rest if column.part in ("score", "budget")]
    with_budget = "score" if _natural([name, *scores]) <= width else "cost"
    for part in ("score", "gap", "cost"):
        together: list[Column] = []
        for column in (c for c in rest if part == (with_budget if c.part == "budget" else c.part)):
            if together and _least([name, *together, column]) > width:
                split.append([name, *together])
                together = []
            together.append(column)
        if together:
            split.append([name, *together])
    return split


def _natural(columns: Sequence[Column]) -> int:
    return sum(max(len(c.title), _content(c)) + GAP for c in columns) - GAP


def _least(columns: Sequence[Column]) -> int:
    return sum(_floor(c) + GAP for c in columns) - GAP


def _content(column: Column) -> int:
    return max((len(_padded(column, cell)) for cell in column.cells), default=0)


def _floor(column: Column) -> int:
    """How narrow a column may get: names keep ten letters or their `least`, and what tells them apart; a title five or
    its `least`; numbers all they have."""
    if column.part == "name":
        names = [cell.text for cell in column.cells]
        return min(_content(column), max(10, column.least, _clear(names)))
    return max(_content(column), min(len(column.title), column.least))


def _clear(names: Sequence[str]) -> int:
    """How many letters tell names apart by their beginnings and ends; at most 24, for then the middle does."""
    for width in range(4, NAME):
        if len({clipped(name, width) for name in names}) == len(set(names)):
            return width
    return NAME


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """A width for every column: the natural one, or less, the most generous of them shrunk first."""
    found = [max(len(c.title), _content(c)) for c in columns]
    floors = [_floor(c) for c in columns]
    while sum(found) + GAP * (len(columns) - 1) > width:
        spare = [w - floor for w, floor in zip(found, floors, strict=True)]
        if max(spare) <= 0 and floors != (floors := _least_of_words(columns, floors)):
            continue
        if max(spare) <= 0:
            break
        found[spare.index(max(spare))] -= 1
    return found


def _least_of_words(columns: Sequence[Column], floors: Sequence[int]) -> list[int]:
    """Where there is no room even for floors: words give way to numbers, down to eight letters."""
    return [
        min(floor, 8) if column.part == "name" or column.left else floor
        for column, floor in zip(columns, floors, strict=True)
    ]


def _padded(column: Column, cell: Shown) -> str:
    """A cell with its spread, or as many blanks where others have one: numbers line up."""
    if not cell.text or cell.text.isalpha():
        return cell.text
    spread = column.widest_spread
    return f"{cell.text} {cell.spread:>{spread}}" if spread else cell.text


def _table(columns: Sequence[Column], among: Collection[str], faint: Collection[int], console: Console) -> Table:
    """Columns that fit, their titles among those of all tables; the rows at the positions `faint` stand back."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    room = console.width
    sizes = _widths(columns, room)
    # What is left over goes between the columns, up to two more blanks.
    spare = max(0, room - sum(sizes) - GAP * (len(columns) - 1)) // max(1, len(columns) - 1)
    found = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, min(2, spare), 0, 0),
        pad_edge=False,
        header_style="bold",
    )
    titles = told_apart([column.title for column in columns], sizes, among)
    words = {
        place: told_apart([_padded(column, cell) for cell in column.cells], [sizes[place]] * len(column.cells))
        for place, column in enumerate(columns)
        if column.part == "name" or column.left
    }
    for column, title, size in zip(columns, titles, sizes, strict=True):
        if title == "Γ*" and not console.encoding.startswith("utf"):
            title = "G*"
        found.add_column(
            Text(title),  # a str would be read as rich's markup, and a domain may be called "[/x]"
            justify="left" if column.part == "name" or column.left else "right",
            width=size,
            no_wrap=True,
            overflow="ellipsis",
        )
    for i in range(len(columns[0].cells)):
        if columns[-1].part == "cost" and not any(column.cells[i].text for column in columns[1:]):
            continue
        line = (words[place][i] if place in words else _padded(c, c.cells[i]) for place, c in enumerate(columns))
        found.add_row(*map(Text, line), style="dim" if i in faint else "")
    return found
