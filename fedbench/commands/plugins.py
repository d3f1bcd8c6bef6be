"""fedbench plugins: what is installed, and what it offers."""

from __future__ import annotations

import click

from fedbench.commands.choices import PLUGINS


@click.group()
def plugins() -> None:
    """List plugins and show their components."""


@plugins.command("list")
@click.option("--components", is_flag=True, help="List what the plugins register too (imports them the first time).")
@click.option("--kind", metavar="KIND", help="Only components of this kind, e.g. allocation.")
@PLUGINS
def list_(components: bool, kind: str | None, plugins: tuple) -> None:
    """List the installed plugins by their metadata alone, or with --components what they register.

    \b
    fedbench plugins list
    fedbench plugins list --components --kind allocation
    """
    from rich.console import Console

    from fedbench.plugins import Plugins

    registry, console = Plugins(plugins), Console(highlight=False)
    if components or kind:
        _components(registry.catalogue, kind, console)
        return
    rows = [(name, registry.package(name), registry.version(name)) for name in (*registry.entry_points, *registry.files)]
    console.print(_table(("plugin", "package", "version"), sorted(rows)))
    for message in registry.doubles.values():
        console.print(f"! {message}", style="yellow")
    console.print("`fedbench plugins list --components` lists what they register.", style="dim")


@plugins.command("show")
@click.argument("name")
@PLUGINS
def show(name: str, plugins: tuple) -> None:
    """Show every component called NAME: what it is, its package and its options with their defaults.

    \b
    fedbench plugins show fedra
    """
    import json

    from rich.console import Console

    from fedbench.catalogue import KINDS, REQUIRED
    from fedbench.errors import UserError
    from fedbench.plugins import Plugins

    catalogue, console = Plugins(plugins).catalogue, Console(highlight=False)
    found = [component for component in catalogue if component.name == name]
    if not found:
        kind = next((kind for kind in KINDS if kind == "method"), "method")
        raise UserError(catalogue.unknown(kind, name).replace("no method", "no component"))
    for component in found:
        console.print(f"[bold]{component.name}[/bold], {component.kind} of {component.package} (plugin {component.plugin})")
        console.print(f"  {component.summary}")
        profiles = {key: value for options in component.profiles.values() for key, value in options.items()}
        rows = [
            (key, "required" if default == REQUIRED else json.dumps(default), _in_profiles(component, key))
            for key, default in component.options.items()
        ]
        if rows:
            heads = ("option", "default", "in a profile") if profiles else ("option", "default")
            console.print(_table(heads, [row[: len(heads)] for row in rows]))
        if component.open:
            console.print("  and any further option, which is passed on", style="dim")


def _in_profiles(component, key: str) -> str:
    import json

    return ", ".join(f"{name}: {json.dumps(options[key])}" for name, options in component.profiles.items() if key in options)


def _components(catalogue, kind: str | None, console) -> None:
    from fedbench.catalogue import KINDS
    from fedbench.errors import UserError

    if kind and kind not in KINDS:
        raise UserError(f"--kind: there is no {kind!r}; kinds are {', '.join(KINDS)}")
    rows = [(c.kind, c.name, c.package, _first_sentence(c.summary)) for c in catalogue if kind in (None, c.kind)]
    console.print(_table(("kind", "name", "package", "what it is"), rows))
    for plugin, message in catalogue.broken.items():
        console.print(f"! {plugin}: {message}", style="yellow")
    for message in catalogue.clashes.values():
        console.print(f"! {message}", style="yellow")


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".")


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]):
    from rich import box
    from rich.table import Table

    table = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table
