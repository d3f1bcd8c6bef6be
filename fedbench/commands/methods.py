"""fedbench methods: which there are, what unequal clients hold less of, and the papers they are from."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from rich.text import Text

from fedbench.commands.choices import PLUGINS
from fedbench.commands.output import Screen, listing, warn_of_lost
from fedbench.registry.catalogue import FAMILIES
from fedbench.registry.registry import Registry

if TYPE_CHECKING:
    from fedbench.registry.catalogue import Component

OTHERS, BOUNDS = "Other methods", "Bounds and controls"


@click.command()
@PLUGINS
def methods(plugins: tuple) -> None:
    """List the methods by family, with what they limit, their paper, and their role in a leaderboard.

    \b
    fedbench methods
    fedbench methods --plugin mine.py
    fedbench plugins show fedra

    Exit code: 0, or 1 if a plugin could not be read.
    """
    registry = Registry(plugins)
    table = listing(("method", "limited", "role", "paper"), ())
    for family, group in by_family(registry.catalogue.components["method"].values()).items():
        table.add_row(Text(family, "bold"))
        for one in group:
            table.add_row(f"  {one.name}", ", ".join(one.limited) or "nothing", one.role, one.paper)
    console = Screen()
    console.print(table)
    console.print("limited: what a client may hold less of. `fedbench plugins show NAME` has options.", style="dim")
    sys.exit(1 if warn_of_lost(registry) else 0)


def by_family(components: Iterable[Component]) -> dict[str, list[Component]]:
    """Methods by family, those of fedbench first; what is no `method` by its role stands last."""
    found: dict[str, list[Component]] = {family: [] for family in FAMILIES}
    bounds = []
    for one in components:
        if one.role == "method":
            found.setdefault(one.family or OTHERS, []).append(one)
        else:
            bounds.append(one)
    return {family: group for family, group in {**found, BOUNDS: bounds}.items() if group}
