"""Output of commands: the console, the spinner, tables in every format, and warnings about what was left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fedbench.commands.terminal import say
from fedbench.results.loading import what_is_wrong
from fedbench.words import counted, visible

if TYPE_CHECKING:
    import pandas

    from fedbench.registry.registry import Registry


PIPED = 10_000  # columns where output is piped: nothing is cut or folded
NARROWEST = 20  # columns, the fewest that tables are laid out for


class Screen(Console):
    """Rich's console on standard output without highlights, markup and emoji.

    Names of files, domains and plugins come from users: `runs[v2]` is a folder and `:cat:` is no picture. Control
    characters in them are written out. Those of rich itself are added later and stay.
    """

    def __init__(self, **choices: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **choices)
        if not NARROWEST <= self.width <= PIPED:  # a terminal that reports no size, or COLUMNS=0
            self.width = min(max(self.width, NARROWEST), PIPED)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class Spinner:
    """A context manager that shows on a terminal's stderr what is under way, and counts; the line goes at its end.

    Args:
        what: is under way, such as `Planning quickstart.yaml`.
        quiet: show nothing.
    """

    def __init__(self, what: str, quiet: bool = False) -> None:
        self.what = what
        screen = Screen(stderr=True)
        self._status = None if quiet or not screen.is_terminal else screen.status(Text(what))

    def __enter__(self) -> Spinner:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def tell(self, done: int, of: int, what: str = "cell") -> None:
        """Show how many of all cells are prepared, or of what else."""
        if self._status:
            self._status.update(Text(f"{self.what}: {done:,} of {counted(of, what)}"))

    def stop(self) -> None:
        """Show no more."""
        if self._status:
            with suppress(OSError):  # the terminal was closed
                self._status.stop()


def put(view: pandas.DataFrame, form: str) -> None:
    """Print a frame.

    Args:
        view: the frame.
        form: `rich` for a terminal, or a format of `fedbench.report.style`.
    """
    screen = Screen(width=wide())
    from fedbench.report.style import show, style

    if form == "rich":
        with screen.capture() as captured:
            show(view, screen)
        text = captured.get()
    else:
        text = style(view, form)
        for warning in dict.fromkeys(one.get("warning") for one in view.attrs["pages"]) if form == "csv" else ():
            if warning:  # which rows have no place for
                say(warning, err=True)
    click.echo(text, nl=False, color=True)


def wide() -> int | None:
    """The width of what is printed: the terminal's, or COLUMNS; where output is piped, as much as it needs."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED


def tell_left_out(wrong: Sequence[str], lacks: str = "") -> None:
    """Print on stderr which results are missing and which were left out; for the latter end with exit code 1."""
    if lacks:
        say(lacks, err=True)
    if wrong:
        say(f"Left out, because it is {what_is_wrong(wrong)}", err=True)
        sys.exit(1)


def listing(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Words in columns, under a rule. What is too long is folded, not cut: two names may begin the same way."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def warn_of_lost(registry: Registry) -> bool:
    """Name on stderr the plugins that ended or hung the process that imported them; return whether there are any."""
    for message in registry.lost.values():
        say(f"! {message}", err=True)
    return bool(registry.lost)
