"""Whether components keep their contracts: those of a file, a plugin, a package, or a name, one verdict each."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fedbench
from fedbench.cell.found import Found
from fedbench.cell.strangers import beginning
from fedbench.data import root_of
from fedbench.errors import UserError
from fedbench.registry.catalogue import KINDS, Component
from fedbench.registry.registry import LIFECYCLE, Registry
from fedbench.registry.slips import needed, slip
from fedbench.testing.verdict import BROKEN, OK, SKIPPED, Untried, Verdict
from fedbench.testing.whole import check_component
from fedbench.words import meant

OURS = Path(fedbench.__file__).parent

# What a component must leave as it is in its process; others of what is watched change by honest imports.
KEPT = {"current folder", "default of torch", "gradients", "determinism", "numpy's errors"}


def verdicts(
    names: Iterable[str],
    plugins: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    at: Callable[[str], None] = lambda what: None,
    done: Collection[str] = (),
) -> Iterator[Verdict]:
    """One for each component, in this process.

    names: of files, components, plugins or packages · plugins: files beside them · options: for those that have them ·
    at: is told what is tried next · done: what needs no verdict any more. Raises UserError for a name or an option that
    nobody has.
    """
    names, options = list(names), dict(options or {})
    files = [name for name in names if name.endswith(".py")]
    registry, found = Registry(plugins), list[Component]()
    for file in files:
        at(f"loading {file}")
        registry, own = _with(registry, file)
        if isinstance(own, Verdict):
            yield own
        else:
            found += own
    for name in names:
        if name not in files:
            at(f"loading {name}")
            found += _named(registry, name)
            yield from (Verdict(BROKEN, f"plugin {p}", why) for p, why in _broken(registry, name))
    _check_options(found, options)
    for component in dict.fromkeys((c.kind, c.name, c.plugin) for c in found):
        what = f"{component[0]} {component[1]}"
        if what not in done:
            at(what)
            yield verdict_of(registry, *component, options)


def verdict_of(registry: Registry, kind: str, name: str, plugin: str, options: Mapping[str, Any]) -> Verdict:
    """How a component keeps its contract, and why not: one that needs options, or data that are not here, cannot be
    tried."""
    what, (make, component) = f"{kind} {name}", registry.load(plugin)[kind, name]
    file = registry.module_file(plugin)
    if clash := registry.catalogue.clashes.get(what):
        return Verdict(BROKEN, what, clash)
    own = {key: value for key, value in options.items() if component.open or key in component.options}
    if told := slip(component, own):
        return Verdict(BROKEN, what, told)
    if unset := needed(component, own):
        sets = " ".join(f"--set {key}=..." for key in unset)
        return Verdict(SKIPPED, what, f"it needs {', '.join(unset)}: give {sets}")
    root = own.get("root") or root_of(name)
    if component.source and (lacks := component.source.lacks(name, root)):
        return Verdict(SKIPPED, what, lacks.partition("\n")[0])
    found = Found()
    try:
        check_component(registry, kind, name, **own)
    except KeyboardInterrupt:
        raise
    except Untried as error:
        return Verdict(SKIPPED, what, str(error))
    except AssertionError as error:
        return Verdict(BROKEN, what, str(error) if _is_ours(error) else _told(error, make, file))
    except BaseException as error:  # whatever the component raises, SystemExit among it
        return Verdict(BROKEN, what, _told(error, make, file))
    if left := sorted(KEPT.intersection(found.changed())):
        return Verdict(
            BROKEN, what, f"it leaves the process otherwise than it found it ({', '.join(left)}): set it back"
        )
    return Verdict(OK, what)


def _with(registry: Registry, file: str) -> tuple[Registry, list[Component] | Verdict]:
    """The registry with a file beside it, and what that registers; or as it was, and why the file does not load."""
    wider = Registry([*map(str, registry.files.values()), file])
    plugin = Path(file).name
    try:
        made = wider.load(plugin)
    except UserError as error:
        return registry, Verdict(BROKEN, f"plugin {plugin}", str(error))
    if made:
        return wider, [component for _, component in made.values()]
    module = wider.manager.get_plugin(plugin)
    if any(hasattr(module, hook) for hook in LIFECYCLE):
        return wider, Verdict(OK, f"tracker {plugin}")
    hooks = ", ".join(KINDS.values())
    why = f"it registers nothing: write a function called as one of {hooks}, with @fedbench.hookimpl above it"
    return wider, Verdict(BROKEN, f"plugin {plugin}", why)


def _named(registry: Registry, name: str) -> list[Component]:
    """Every component of that name, and all of the plugin or the package of that name. Raises UserError."""
    catalogue = registry.catalogue
    found = [c for c in catalogue if name in (c.name, c.plugin, c.package)]
    if not found and not list(_broken(registry, name)):
        names = {word for c in catalogue for word in (c.name, c.plugin, c.package)}
        hint = meant(name, sorted(names), "`fedbench plugins list --components` lists what there is")
        raise UserError(f"no component is called {name!r}, and no plugin or package; {hint}")
    return found


def _broken(registry: Registry, name: str) -> Iterator[tuple[str, str]]:
    """The plugins of that name, or of a package of that name, that do not load, and why."""
    for plugin, why in registry.catalogue.broken.items():
        if plugin == name or (plugin in registry.entry_points and registry.package(plugin) == name):
            yield plugin, why


def _check_options(found: Sequence[Component], options: Mapping[str, Any]) -> None:
    known = {option for component in found for option in component.options}
    if any(component.open for component in found) or not found:
        return
    for option in options:
        if option not in known:
            raise UserError(
                f"--set {option}: nothing that is checked has such an option; {meant(option, known)}".rstrip("; ")
            )


def _is_ours(error: AssertionError) -> bool:
    """Whether a check has raised it, and nothing that was checked."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).parent == Path(__file__).parent


def _told(error: BaseException, make: Callable[..., Any], file: str | None) -> str:
    """An exception in one line, with the last place in the plugin's own file; where it was raised by fedbench, which
    called what is there, with the place where what is registered begins."""
    frames = traceback.extract_tb(error.__traceback__)
    told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    if own := [frame for frame in frames if frame.filename == file]:
        return f"{told} ({Path(own[-1].filename).name}:{own[-1].lineno})"
    if Path(frames[-1].filename).is_relative_to(OURS):
        return f"{told}{beginning(make)}"
    return f"{told} ({frames[-1].filename}:{frames[-1].lineno})"
