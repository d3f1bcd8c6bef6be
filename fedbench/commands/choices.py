"""The options that several commands share: which cells of a suite, and under which settings."""

from __future__ import annotations

from collections.abc import Callable

import click

SUITE = click.argument("suite", type=click.Path(dir_okay=False))
RESULTS = click.option("--results", default="results", show_default=True, metavar="DIR", help="Where results go.")
PLUGINS = click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE", help="A .py file with a plugin of your own."
)

_CELLS = (
    click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios, e.g. 'all_*'."),
    click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods of the suite."),
    click.option("--seed", "seeds", multiple=True, type=int, metavar="N", help="These seeds instead of the suite's."),
    click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a setting, e.g. train.rounds=3."),
    click.option("--profile", type=click.Choice(["paper", "reference"]), help="A paper's text, or its released code."),
    click.option("--data", metavar="NAME", help="Run on an overlay or other data, e.g. embedded."),
    PLUGINS,
)


def cells(command: Callable) -> Callable:
    """The options that choose and change cells."""
    for option in reversed(_CELLS):
        command = option(command)
    return command
