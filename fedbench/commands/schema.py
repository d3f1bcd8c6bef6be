"""fedbench schema: the JSON Schema of suites, for editors."""

from __future__ import annotations

import click

from fedbench.commands.choices import PLUGINS


@click.command(short_help="Print the JSON Schema of suites, for editors.")
@PLUGINS
def schema(plugins: tuple) -> None:
    """Print the JSON Schema of suites, with every component that is installed.

    \b
    fedbench schema > suite.schema.json
    # in a suite, for editors with a YAML language server:
    # yaml-language-server: $schema=suite.schema.json
    """
    import json

    from fedbench.registry.registry import Registry
    from fedbench.suite import json_schema

    click.echo(json.dumps(json_schema(Registry(plugins).catalogue), indent=2))
