"""fedbench data: the data sets that suites can name."""

from __future__ import annotations

import click

from fedbench.commands.choices import PLUGINS


@click.group()
def data() -> None:
    """List the data sets that suites can name."""


@data.command("list")
@PLUGINS
def list_(plugins: tuple) -> None:
    """List the data sets that suites can name, and where decoded images are kept.

    \b
    fedbench data list
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from fedbench.catalogue import REQUIRED
    from fedbench.data import cache_dir
    from fedbench.plugins import Plugins

    console = Console(highlight=False)
    table = Table("data set", "what it is", "needs", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, component in Plugins(plugins).catalogue.components["dataset"].items():
        needs = ", ".join(option for option, default in component.options.items() if default == REQUIRED)
        table.add_row(name, component.summary.split(". ")[0].rstrip("."), needs or "nothing")
    console.print(table)
    console.print(
        f"Decoded images are kept in {cache_dir()} (FEDBENCH_CACHE sets another folder).", style="dim", soft_wrap=True
    )
