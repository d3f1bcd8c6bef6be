"""fedbench suites: the suites that come with fedbench, listed, shown, and copied to begin one's own from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from fedbench.commands.output import Screen, listing
from fedbench.scaffold import copied, put
from fedbench.suite.shipped import named, names, summary


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:

    return [name for name in names() if name.startswith(incomplete)]


NAME = click.argument("name", shell_complete=_names)


@click.group()
def suites() -> None:
    """The suites that ship with fedbench. Every command that takes a suite takes their names too.

    \b
    fedbench suites list
    fedbench suites show quickstart
    fedbench suites copy feature_skew mine.yaml
    fedbench run quickstart
    """


@suites.command("list", short_help="Their names, and what they are about.")
def list_() -> None:
    """List the shipped suites.

    \b
    fedbench suites list
    """

    console = Screen()
    console.print(listing(("suite", "what it is about"), [(name, summary(name)) for name in names()]))
    console.print("`fedbench run NAME` runs one, `fedbench plan NAME` says what that would take.", style="dim")


@suites.command(short_help="Print one.")
@NAME
def show(name: str) -> None:
    """Print the suite NAME, as it is written.

    \b
    fedbench suites show quickstart
    """

    click.echo(named(name).read_text("utf-8"), nl=False)


@suites.command(short_help="Copy one, to change it.")
@NAME
@click.argument("file", required=False, type=click.Path())
def copy(name: str, file: str | None) -> None:
    """Copy the suite NAME to FILE (by default its own name, here), to begin one of your own from. A file with
    a paper's numbers that the suite reads is copied next to FILE. Nothing is overwritten.

    \b
    fedbench suites copy quickstart
    fedbench suites copy papers/fedra/table1 mine.yaml
    """

    source = named(name)
    target = Path(file or source.name)
    if target.is_dir():
        target /= source.name
    put(copied(source, target))
    click.echo(f"{target}: run it with `{shlex.join(['fedbench', 'run', str(target)])}`")
