"""fedbench suites: the suites that come with fedbench, listed, shown, and copied to begin one's own from."""

from __future__ import annotations

from pathlib import Path

import click

from fedbench.commands.choices import FORM, FilePath
from fedbench.commands.output import put
from fedbench.commands.terminal import say
from fedbench.registry.registry import Registry
from fedbench.scaffold import copied, suite_name
from fedbench.scaffold import put as put_file
from fedbench.suite.shipped import listed, named, names
from fedbench.words import command_line


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in names() if name.startswith(incomplete)]


NAME = click.argument("name", shell_complete=_names)


@click.group()
def suites() -> None:
    """The suites that ship with fedbench. Every command that takes a suite also takes their names.

    \b
    fedbench suites list
    fedbench suites show quickstart
    fedbench suites copy feature_skew mine.yaml
    fedbench run quickstart
    """


@suites.command("list", short_help="List the suites, and what they are about.")
@FORM
def list_(form: str) -> None:
    """List the shipped suites: their data, and whether they are here; cells, including those of a tuning; and the time
    that all cells take on two cores, if it is known.

    \b
    fedbench suites list
    fedbench suites list --format csv
    """
    from fedbench.data.sources import LOCATIONS
    from fedbench.report.views import lists

    catalogue, known = Registry().catalogue, listed()
    here = {}
    for data in {one for facts in known.values() for one in facts["data"]}:
        component = catalogue.find("dataset", data)
        own = "your own" if any(option in component.options for option in LOCATIONS) else "built in"
        here[data] = source.status(source.place(data)) if (source := component.source) else own
    put(lists.suites(known, here), form)


@suites.command(short_help="Print a suite.")
@NAME
def show(name: str) -> None:
    """Print the suite NAME.

    \b
    fedbench suites show quickstart
    """
    click.echo(named(name).read_text("utf-8"), nl=False)


@suites.command(short_help="Copy a suite, to change it.")
@NAME
@click.argument("file", required=False, type=FilePath())
def copy(name: str, file: str | None) -> None:
    """Copy the suite NAME to FILE, as a start for your own suite. By default FILE has the suite's name, in the current
    folder. The suite and the folder of its results are named after FILE. If the suite reads a file with a paper's
    numbers, it is copied next to FILE. Nothing is overwritten.

    \b
    fedbench suites copy quickstart
    fedbench suites copy papers/fedra/table1 mine.yaml
    """
    source = named(name)
    target, name = Path(file or source.name), suite_name(Path(file).stem) if file else ""
    if target.is_dir():
        target, name = target / source.name, ""
    put_file(copied(source, target, name))
    say(f"{target}: run it with `{command_line(['fedbench', 'run', str(target)])}`")
