"""Tables on a terminal, in as many parts as its width needs; readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedbench.report.frames import Frame
from fedbench.report.layout import laid_out
from fedbench.report.page import Column, Page, Shown, Table, View

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

GAP = 2  # blanks between two columns, one of which is the rule's
TITLE = 8  # letters of a title that stay on one line, before it is folded
NAME = 24  # letters of a name that stay on one line, where a terminal is narrow
WIDE = 100  # letters of a sentence on one line


def show(found: Frame | View, console: Console) -> None:
    """Print every table with the sentences around it, and once at the end what the columns mean."""
    from rich.text import Text

    view = found if isinstance(found, View) else laid_out(found)
    if view.shared:
        console.print(Text(view.shared, style="bold"))
        console.print()
    for page in view.pages:
        _show_page(page, console)
    for sentence in view.legend:
        _tell(sentence, "dim", console)


def _show_page(page: Page, console: Console) -> None:
    from rich.text import Text

    console.print(Text(page.title, style="bold"))
    for place, table in enumerate(page.tables):
        if table.caption:
            console.print(Text(table.caption, style="dim"))
        if page.above and not place:
            console.print(Text(page.above), width=min(console.width, WIDE))
        if table.warning:
            console.print(Text(table.warning, style="yellow"), width=min(console.width, WIDE))
        for columns in _fitting(table.columns, console.width):
            console.print(_grid(table, columns, console))
            console.print()
    for note in page.remarks:
        _tell(note, "dim", console)
    for note in page.notes:
        _tell(note, "yellow", console)
    if page.remarks or page.notes:
        console.print()


def _tell(text: str, style: str, console: Console) -> None:
    """A sentence below a table."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text, style=style), (0, 0, 0, 1), expand=False), width=min(console.width, WIDE))


def _fitting(found: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns in tables that fit, each with the names: parts of a kind stay together as long as they can."""
    names = [column for column in found if column.part == "name"]
    rest = [column for column in found if column.part != "name"]
    taken = sum(_width(column, width) + GAP for column in names) - GAP
    if taken + sum(_width(column, width) + GAP for column in rest) <= width:
        return [[*names, *rest]]
    tables: list[list[Column]] = []
    for part in dict.fromkeys(column.part for column in rest):
        own = [column for column in rest if column.part == part]
        size = sum(_width(column, width) + GAP for column in own)
        if tables and sum(_width(column, width) + GAP for column in tables[-1]) + taken + size <= width:
            tables[-1] += own
            continue
        for place, column in enumerate(own):
            there = taken + sum(_width(one, width) + GAP for one in tables[-1]) if tables and place else width
            if there + _width(column, width) + GAP > width:
                tables.append([])
            tables[-1].append(column)
    return [[*names, *columns] for columns in tables]


def _width(column: Column, width: int) -> int:
    """How wide a column is: its cells whole; a long title is folded, and on a narrow terminal a long name."""
    cells = max((len(_padded(column, cell)) for cell in column.cells), default=0)
    if column.part == "name" or column.left:
        most = max(NAME, width // 3)
        return max(min(cells, most), min(len(column.title), most))
    title = len(column.title) if len(column.title) <= TITLE else max(TITLE, *map(len, column.title.split()))
    return max(cells, min(title, max(cells, 2 * TITLE)))


def _padded(column: Column, cell: Shown) -> str:
    """A cell with its spread, or as many blanks where others have one: numbers line up."""
    if not cell.text or cell.text.isalpha():
        return cell.text
    spread = column.widest_spread
    return f"{cell.text} {cell.spread:>{spread}}" if spread else cell.text


def _grid(table: Table, columns: Sequence[Column], console: Console) -> Grid:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    wide = sum(max(len(c.title), _width(c, console.width)) + GAP for c in columns) <= console.width
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, GAP - 1, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        title = "G*" if column.title == "Γ*" and not console.encoding.startswith("utf") else column.title
        size = _width(column, console.width)
        grid.add_column(
            Text(title),  # a str would be read as rich's markup, and a domain may be called "[/x]"
            justify="left" if column.part == "name" or column.left else "right",
            width=max(size, len(title)) if wide else size,
            overflow="fold",
        )
    rows = range(len(columns[0].cells))
    others = [column for column in columns if column.part != "name"]
    partial = len(columns) < len(table.columns)
    for i in rows:
        if partial and not any(column.cells[i].text for column in others):
            continue
        line = [Text(_padded(c, c.cells[i]), style="bold" if c.bold == i else "") for c in columns]
        grid.add_row(*line, style="dim" if i in table.faint else "", end_section=i + 1 == table.apart)
    return grid
