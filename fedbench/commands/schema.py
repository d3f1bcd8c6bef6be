"""fedbench schema: the JSON Schema of suites, for editors."""

from __future__ import annotations

from typing import Any

import click

from fedbench import scaffold
from fedbench.commands.choices import PLUGINS, gone, takes
from fedbench.registry.catalogue import Catalogue
from fedbench.registry.registry import Registry
from fedbench.suite import json_schema

INSTALL = gone("--install", f"`fedbench schema > {scaffold.SCHEMA}`, and the line `{scaffold.LINE}{scaffold.SCHEMA}`")


@click.command()
@takes(INSTALL)
@click.option("--built-in", is_flag=True, help="Only built-in components.")
@PLUGINS
def schema(built_in: bool, plugins: tuple) -> None:
    """Print the JSON Schema of suites, with every component that is installed. If a suite names it in a comment,
    editors complete and explain keys and names, and underline mistakes.

    \b
    fedbench schema > suite.schema.json
    fedbench schema --plugin mine.py > suite.schema.json
    """
    catalogue = Registry(plugins).catalogue
    click.echo(scaffold.dumped(json_schema(_own(catalogue) if built_in else catalogue)), nl=False)


def _own(catalogue: Catalogue) -> Catalogue:
    own: Any = Catalogue()
    own.add(component for component in catalogue if component.package == "fedbench")
    return own
