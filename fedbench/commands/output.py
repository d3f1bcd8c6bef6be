"""What commands print: a view in the format asked for, plain lists, and what was left out of either."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from fedbench.registry.registry import Registry
    from fedbench.report.frames import Frame


PIPED = 10_000  # letters of a line where nothing is cut or folded


def put(view: Frame, form: str, paged: bool = False) -> None:
    """rich is for a terminal; the others are those of `fedbench.report.render`. paged: in a pager where that is a
    terminal and there is more than it shows."""
    from fedbench.commands.screen import Screen

    screen = Screen(width=wide())
    from fedbench.report.render import render, show

    if form == "rich":
        with screen.capture() as captured:
            show(view, screen)
        text = captured.get()
    else:
        text = render(view, form)
        frame = getattr(view, "frame", view)
        for warning in dict.fromkeys(one.get("warning") for one in frame.attrs["pages"]) if form == "csv" else ():
            if warning:  # which rows have no place for
                click.echo(warning, err=True)
    if paged and screen.is_terminal and sys.stdout.isatty() and text.count("\n") >= screen.height:
        _page(text)
    else:
        click.echo(text, nl=False, color=True)


def wide() -> int | None:
    """The width of what is printed: the terminal's, or COLUMNS; where output is piped, as much as it needs."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED


def _page(text: str) -> None:
    """In PAGER, else less; less is told to let colours through where nobody told it anything."""
    told = "LESS" in os.environ
    if not told:
        os.environ["LESS"] = "-R"
    try:
        click.echo_via_pager(text, color=True)
    finally:
        if not told:
            del os.environ["LESS"]


def tell_left_out(wrong: Sequence[str], lacks: str = "") -> None:
    """Say what there is no result of yet, if anything; and what was left out because it is not as it was written: then
    end with exit code 1."""
    if lacks:
        click.echo(lacks, err=True)
    if wrong:
        from fedbench.results.loading import what_is_wrong

        click.echo(f"Left out, because it is {what_is_wrong(wrong)}", err=True)
        sys.exit(1)


def listing(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Words in columns, under a rule."""
    from rich import box
    from rich.table import Table

    table = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table


def warn_of_lost(registry: Registry) -> bool:
    """Name on stderr the plugins that ended or hung the process that imported them; whether there are any."""
    for message in registry.lost.values():
        click.echo(f"! {message}", err=True)
    return bool(registry.lost)
