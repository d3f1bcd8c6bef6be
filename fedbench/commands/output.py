"""What commands print: a view in the format asked for, and plain lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from fedbench.report.page import View


def put(view: View, form: str) -> None:
    """rich is for a terminal; the others are those of `fedbench.report.text`."""
    if form == "rich":
        from fedbench.commands.screen import Screen
        from fedbench.report.terminal import show

        show(view, Screen())
    else:
        from fedbench.report.text import render

        click.echo(render(view, form), nl=False)


def listing(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Words in columns, under a rule."""
    from rich import box
    from rich.table import Table

    table = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table
