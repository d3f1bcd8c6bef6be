"""fedbench plugins: what is installed, and what it offers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.padding import Padding
from rich.text import Text

from fedbench.commands import COMMANDS
from fedbench.commands.choices import PLUGINS, Duration, FilePath, parsed_sets
from fedbench.commands.output import Screen, listing, warn_of_lost
from fedbench.commands.verdicts import DEADLINE, PluginCheck
from fedbench.errors import UserError
from fedbench.processes.signals import raising
from fedbench.registry.catalogue import KINDS, REQUIRED, SET_UP
from fedbench.registry.installed import OURS
from fedbench.registry.registry import Registry
from fedbench.scaffold import kinds, package, put
from fedbench.schema import described
from fedbench.words import meant, quoted, suggestion

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fedbench.registry.catalogue import Catalogue, Component

VERDICTS = {"ok": "green", "skipped": "dim", "BROKEN": "red"}  # and the colour each is printed in


_TIMEOUT = click.option(
    "--timeout",
    metavar="DURATION",
    type=Duration(),
    help="How long a third-party plugin may take to be imported.  [30]",
)


class NewKind(click.ParamType):
    """A kind of component, or a tracker."""

    name = "kind"

    def convert(self, value: str, *_: object) -> str:
        if value not in (known := kinds()):
            raise UserError(
                f"--kind: there is no {value!r}{suggestion(value, known, '')}; kinds are {', '.join(known)}"
            )
        return value


@click.group()
def plugins() -> None:
    """List plugins, show their components, check them against their contracts, and begin new ones.

    \b
    fedbench plugins list --components
    fedbench plugins show fedra
    fedbench plugins check mine.py
    fedbench plugins new strided --kind allocation
    """


@plugins.command("list", short_help="List what is installed, and what it registers.")
@click.option("--components", is_flag=True, help="Also list what the plugins register (imports them the first time).")
@click.option("--kind", metavar="KIND", help="Only components of this kind, e.g. allocation.")
@_TIMEOUT
@PLUGINS
def list_(components: bool, kind: str | None, timeout: float | None, plugins: tuple) -> None:
    """List the installed plugins of each package by their metadata alone, or with --components what they register.

    \b
    fedbench plugins list
    fedbench plugins list --components --kind allocation
    """
    registry, console = Registry(plugins, timeout=timeout), Screen()
    if components or kind:
        _components(registry.catalogue, kind, console)
        sys.exit(1 if registry.lost else 0)
    rows = _grouped(registry)
    console.print(listing(("package", "version", "of kind", "plugins"), rows))
    for message in registry.refused(COMMANDS):
        console.print(f"! {message}", style="yellow")
    if any("+sha256:" in version for _, version, *_ in rows):
        console.print(
            "+sha256: a package that is installed editable; results of other code are not taken for its own.",
            style="dim",
        )
    console.print("`fedbench plugins list --components` lists what they register.", style="dim")


def _grouped(registry: Registry) -> list[tuple[str, ...]]:
    """A row for each package and version; for each folder of plugins where they are fedbench's own."""
    found: dict[tuple[bool, str, str, str], list[str]] = {}
    for name in sorted((*registry.entry_points, *registry.files)):
        package, kind = registry.package(name), ""
        if not registry.is_third_party(name):
            kind = registry.entry_points[name].module.split(".")[1] if name in registry.entry_points else "trackers"
        found.setdefault((package != OURS, package, registry.version(name), kind), []).append(name)
    return [(*group, ", ".join(names)) for (_, *group), names in sorted(found.items())]


@plugins.command("show", short_help="Show a component with its options and defaults.")
@click.argument("name")
@_TIMEOUT
@PLUGINS
def show(name: str, timeout: float | None, plugins: tuple) -> None:
    """Show every component called NAME: what it is, its package, what its options mean, and their defaults.

    \b
    fedbench plugins show fedra

    Exit code: 0, or 1 if a plugin could not be read.
    """
    registry, console = Registry(plugins, timeout=timeout), Screen()
    catalogue = registry.catalogue
    lost = warn_of_lost(registry)
    for component in _named(catalogue, name):
        of = (component.kind, name)
        for message in (*filter(None, [catalogue.clashes.get(" ".join(of))]), *catalogue.refusals({of})):
            console.print(Text(f"! {message}", "yellow"), soft_wrap=True)
        origin = f", {component.kind} of {component.package} (plugin {component.plugin})"
        console.print(Text.assemble((component.name, "bold"), origin))
        for paragraph in (component.summary, *filter(None, component.details.split("\n\n"))):
            console.print(Padding(Text(paragraph), (0, 0, 0, 2)))
        values = [component.better and f"{component.better} is better", component.unit, component.format]
        if any(values):
            console.print(Padding(Text(f"Values: {', '.join(filter(None, values))}"), (0, 0, 0, 2)))
        if component.kind in SET_UP and component.ignores:
            console.print(Padding(Text(f"Does not depend on {', '.join(component.ignores)}."), (0, 0, 0, 2)))
        if component.paper:
            console.print(Padding(Text(f"Paper: {component.paper}"), (0, 0, 0, 2)))
        if component.options:
            console.print(_options(component))
        if component.open:
            console.print("  and any further option, which is passed on", style="dim")
    sys.exit(1 if lost else 0)


def _options(component: Component) -> Table:
    """The options of a component: default, allowed values and values in profiles."""
    rows = [
        (
            key,
            "required" if default == REQUIRED else json.dumps(default),
            described(component.takes[key]) if key in component.takes else "",
            _in_profiles(component, key),
        )
        for key, default in component.options.items()
    ]
    heads = ("option", "default", "takes", "in a profile")
    filled = [i for i in range(len(heads)) if i < 2 or any(row[i] for row in rows)]
    return listing([heads[i] for i in filled], [[row[i] for i in filled] for row in rows])


@plugins.command("check", short_help="Check that components keep their contracts.")
@click.argument("names", nargs=-1, required=True, type=FilePath(), metavar="NAME...")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="An option of the component, e.g. rank=4.")
@click.option("--deadline", type=Duration(), metavar="DURATION", help="How long one check may take.  [300]")
@PLUGINS
def check_(names: tuple, sets: tuple, deadline: float | None, plugins: tuple) -> None:
    """Check components against the contracts of their kinds: those of a .py file, of a plugin or package, or those
    called NAME. Each check runs in a separate process.

    \b
    fedbench plugins check mine.py
    fedbench plugins check fedra
    fedbench plugins check mine.py --set rank=4

    Exit code: 0 if all keep their contract, 1 if some do not or could not be tried. `fedbench.testing` offers the same
    checks to your own tests.
    """
    console, options = Screen(), parsed_sets(sets, "rank=4")
    check, sound = PluginCheck(names, plugins, options, deadline or DEADLINE), True
    try:
        with raising():  # a signal ends the process that judges, too
            for verdict, what, why in check.verdicts():
                sound &= verdict == "ok"
                console.print(Text.assemble((f"{verdict:7} ", VERDICTS[verdict]), what))
                if why:
                    console.print(Text(f"{'':8}{why}"), soft_wrap=True)
    finally:
        sys.stderr.write(check.printed)
    sys.exit(0 if sound else 1)


@plugins.command(short_help="Write a package with your own component.")
@click.argument("name")
@click.option(
    "--kind", required=True, type=NewKind(), help="The kind of component: allocation, method, metric, ...; or tracker."
)
@click.option("--into", metavar="DIR", type=FilePath(), help="The folder to write; by default fedbench-NAME, here.")
def new(name: str, kind: str, into: str | None) -> None:
    """Write an installable package with one component called NAME, its tests, and a suite that compares it with what
    is built in. All of it works as it is; nothing is overwritten.

    \b
    fedbench plugins new strided --kind allocation
    cd fedbench-strided
    pip install -e '.[test]' && pytest
    fedbench run suite.yaml

    Kinds: allocation, aggregator, objective, adapter, backbone, method, dataset, partition, metric, executor; tracker,
    which follows runs.
    """
    made = package(kind, name)
    _refuse_taken(kind, name)
    folder = Path(into or f"fedbench-{name.replace('_', '-')}")
    put(made, folder)
    click.echo(
        f"{folder} has {kind} {name}, its tests and a suite. Next:\n"
        f"  cd {quoted(str(folder))}\n"
        "  pip install -e '.[test]' && pytest\n"
        f"  {kinds()[kind].run.replace('NAME', name)}"
    )


def _refuse_taken(kind: str, name: str) -> None:
    """Raises UserError for a name that a suite would not know from that of a component which is installed."""
    if taken := Registry().catalogue.components.get(kind, {}).get(name):
        raise UserError(f"{taken.package} registers the {kind} {name!r} already; choose another name, as my_{name}")


def _named(catalogue: Catalogue, name: str) -> list[Component]:
    """Every component of that name. Raises UserError with the nearest name of any kind."""
    found = [component for component in catalogue if component.name == name]
    if not found:
        names = [component.name for component in catalogue]
        hint = meant(name, names, "`fedbench plugins list --components` lists what there is")
        raise UserError(f"no component is called {name!r}; {hint}")
    return found


def _in_profiles(component: Component, key: str) -> str:
    return ", ".join(
        f"{name}: {json.dumps(options[key])}" for name, options in component.profiles.items() if key in options
    )


def _components(catalogue: Catalogue, kind: str | None, console: Console) -> None:
    if kind and kind not in KINDS:
        raise UserError(f"--kind: there is no {kind!r}{suggestion(kind, KINDS, '')}; kinds are {', '.join(KINDS)}")
    rows = [(c.kind, c.name, c.package, _first_sentence(c.summary)) for c in catalogue if kind in (None, c.kind)]
    console.print(listing(("kind", "name", "package", "what it is"), rows))
    for plugin, message in catalogue.broken.items():
        console.print(f"! {plugin}: {message}", style="yellow")
    for message in (*catalogue.clashes.values(), *catalogue.refusals()):
        console.print(f"! {message}", style="yellow")


def _first_sentence(text: str) -> str:
    return re.split(r"\.\s+(?=[A-Z`])", text)[0].rstrip(".")  # "Eq. 4" ends no sentence
