"""What a shell offers while a command is typed: suites, what stands in them, components, and what results hold.

A key press waits for the answer, so nothing here imports a plugin, torch or pydantic; and whatever goes wrong, the
shell is offered nothing and the screen stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fedbench.words import in_short

Offer = tuple[str, str]  # a value, and what a shell that can says of it
Offers = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
SUMMARY = 60  # characters of what is said of a value
NONE = click.Argument(["none"])  # for where none is asked


def offers(find: Callable[[click.Context, str], Iterable[Offer]]) -> Offers:
    """`find(context, incomplete)` as click asks for it: those of its values that begin like `incomplete`, each once."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = dict(find(context, incomplete))
        except Exception:  # a suite half written, results of a stranger's: the command itself will say what is wrong
            return []
        return [CompletionItem(name, help=said or None) for name, said in found.items() if name.startswith(incomplete)]

    complete.__doc__ = find.__doc__
    return complete


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, as the shell itself completes them."""
    return [CompletionItem(incomplete, type="file")]


def folders(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders, as the shell itself completes them."""
    return [CompletionItem(incomplete, type="dir")]


def or_else(first: Offers, then: Offers) -> Offers:
    """What `first` offers, or where that is nothing what `then` does: shells do not mix names with files of theirs."""
    return lambda context, parameter, incomplete: (
        first(context, parameter, incomplete) or then(context, parameter, incomplete)
    )


@offers
def names_of_suites(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """Names of shipped suites."""
    from fedbench.suite.shipped import names

    return ((name, "") for name in names())


@offers
def yaml_or_name(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """YAML files in the folder that was begun with, here by default, and names of shipped suites."""
    head = incomplete.rpartition("/")[0]
    if not head.startswith("/"):
        yield from ((file.as_posix(), "a file") for file in sorted(Path(head).glob("*.y*ml")))
    yield from ((item.value, "") for item in names_of_suites(context, NONE, incomplete))


suites = or_else(yaml_or_name, files)


@offers
def scenarios(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """The scenarios of the suite, or of the results, that the command line names."""
    if suite := _suite(context):
        return ((name, "") for name in suite.get("scenarios", {}))
    return ((entry["scenario"], "") for entry in _entries(context))


@offers
def methods(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """The methods of the suite, or of the results, that the command line names; else those that are installed."""
    if suite := _suite(context):
        listed = (entry["name"] if isinstance(entry, dict) else entry for entry in suite["methods"])
        return ((name, "") for name in listed)
    found = {entry["method"]: "" for entry in _entries(context)}
    return iter(found.items()) if found else _installed("method")


@offers
def variants(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """A pattern for each value that the suite sweeps over; or the sweep points of the results that are named."""
    if suite := _suite(context):
        axes = suite.get("sweep", {}).items()
        return ((f"*{key}={in_short(value)}*", "") for key, values in axes for value in values)
    return ((entry["variant"], "") for entry in _entries(context) if entry["variant"])


@offers
def data(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """The overlays of the suite that the command line names, and data sets."""
    yield from ((name, "an overlay of the suite") for name in (_suite(context) or {}).get("overlays", {}))
    yield from _installed("dataset")


@offers
def cells_there(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """The cells of the suite's results that were begun with: `results/quickstart/` and what follows."""
    head = incomplete.rpartition("/")[0]
    titles = {entry["cell"]: _title(entry) for entry in _read(Path(head or ".") / "index.json")}
    there = sorted(file.parent for file in Path(head).glob("*/manifest.json"))
    return ((folder.as_posix(), titles.get(folder.name, "")) for folder in there)


cells = or_else(cells_there, folders)


def components(*kinds: str) -> Offers:
    """Names of components of these kinds, or of any: those that are installed."""
    return offers(lambda context, incomplete: _installed(*kinds))


@offers
def python_files(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """Python files in the folder that was begun with, here by default."""
    head = incomplete.rpartition("/")[0]
    return ((file.as_posix(), "a file") for file in sorted(Path(head).glob("*.py")))


@offers
def file_or_component(context: click.Context, incomplete: str) -> Iterator[Offer]:
    """What `plugins check` takes."""
    for one in (python_files, components()):
        yield from ((item.value, item.help or "") for item in one(context, NONE, incomplete))


def _installed(*kinds: str) -> Iterator[Offer]:
    """Components by what is kept of them; where that is yet to be made, the entry points, which mostly are called
    after what they register."""
    from fedbench.registry.registry import Registry

    registry = Registry()
    catalogue = registry.remembered
    if catalogue is None:
        return ((name, "") for name in sorted(registry.entry_points))
    found = sorted((c for c in catalogue if not kinds or c.kind in kinds), key=lambda c: c.name)
    return ((c.name, f"{c.kind}: {c.summary}"[:SUMMARY]) for c in found)


def _suite(context: click.Context) -> dict[str, Any] | None:
    """The suite that the command line names, unchecked; None where it names none."""
    named = _named(context, "suite")
    if not named:
        return None
    from fedbench.suite.problems import Problems
    from fedbench.suite.shipped import found
    from fedbench.suite.yaml import read

    plain: dict[str, Any] = read(found(named[0]), Problems()).plain()
    return plain


def _named(context: click.Context, parameter: str) -> list[str]:
    """What the command line gives for an argument of that name. Behind an option whose value is being typed click has
    not come to the arguments yet, and has them as what is left."""
    if not any(parameter == one.name for one in context.command.params):
        return []
    given = context.params.get(parameter) or context.args
    return [given] if isinstance(given, str) else list(given)


def _entries(context: click.Context) -> Iterator[dict[str, Any]]:
    """What the indices below the named paths say, `results` where none is named."""
    for path in _named(context, "paths") or _named(context, "source") or ("results",):
        own = Path(path) / "index.json"
        for index in [own] if own.is_file() else sorted(Path(path).glob("*/index.json")):
            yield from _read(index)


def _read(index: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(index.read_bytes())["entries"]
    return entries


def _title(entry: dict[str, Any]) -> str:
    return " · ".join(filter(None, (entry["scenario"], entry["method"], entry["variant"], f"seed {entry['seed']}")))


# What is offered for a parameter, by its command and its name, or by its name alone wherever it is taken.
TABLE: dict[str, Offers] = {
    "suite": suites,
    "paths": folders,
    "cell": cells,
    "reproduce source": files,
    "scenarios": scenarios,
    "methods": methods,
    "baseline": methods,
    "variants": variants,
    "metric": components("metric"),
    "backbone": components("backbone"),
    "data": data,
    "plugins": files,
    "results": folders,
    "compare images": methods,
    "suites show name": names_of_suites,
    "suites copy name": names_of_suites,
    "backbones names": components("backbone"),
    "data check names": components("dataset"),
    "data prepare name": components("dataset"),
    "plugins show name": components(),
    "plugins check names": or_else(file_or_component, files),
}


def taught(command: click.Command, path: str) -> click.Command:
    """The command, its parameters and those of its own commands knowing what to offer. path: how it is called."""
    for parameter in command.params:
        offer = TABLE.get(f"{path} {parameter.name}") or TABLE.get(parameter.name or "")
        if offer and isinstance(parameter.type, click.types.StringParamType | click.Path):
            parameter.shell_complete = partial(_for, offer, parameter)  # type: ignore[method-assign]
    for name, own in command.commands.items() if isinstance(command, click.Group) else ():
        taught(own, f"{path} {name}")
    return command


def _for(offer: Offers, parameter: click.Parameter, context: click.Context, incomplete: str) -> list[CompletionItem]:
    return offer(context, parameter, incomplete)
