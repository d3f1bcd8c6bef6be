"""The plugin manager: entry points, files named on the command line, and the catalogue of what they register."""

from __future__ import annotations

import copy
import functools
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from fedbench import __version__, hookspecs
from fedbench.disk import cache_file, hash_of_file, keep, kept
from fedbench.errors import NotApplicable, UserError, told
from fedbench.registry import entrypoints
from fedbench.registry.catalogue import KINDS, Catalogue, Component, Unfit
from fedbench.registry.editable import hash_of_sources, is_editable
from fedbench.registry.hooks import HOOKS, faults
from fedbench.registry.made import fit

if TYPE_CHECKING:
    from fedbench.types import Dataset

GROUP = "fedbench"
# What a `data` section has beside the options of the data set itself.
OF_SECTION = ("partition", "normalize", "image_size", "proxy")
LIFECYCLE = [name for name in HOOKS if name not in KINDS.values()]


class Registry:
    """Everything installed under the entry-point group `fedbench`, and `files` given by `--plugin`.

    A plugin is imported when one of its components is made; what exists is known from the catalogue, kept on disk.
    """

    def __init__(self, files: Sequence[str] = ()) -> None:
        self.entry_points: dict[str, EntryPoint] = {}
        points, self.troubles = entrypoints.points(GROUP)
        for point in points:
            first = self.entry_points.setdefault(point.name, point)
            if first.value != point.value:
                self.troubles[point.name] = (
                    f"two packages install a plugin called {point.name!r}: {_package(first)} and {_package(point)}; "
                    f"the one of {_package(first)} is used"
                )
        self.files = _by_name(files)
        self._makers: dict[str, dict[tuple[str, str], tuple[Callable, Component]]] = {}
        self._sources: dict[str, str] = {}  # hashes of packages that are installed editable
        self.manager = pluggy.PluginManager(GROUP)
        self.manager.add_hookspecs(hookspecs)

    @cached_property
    def catalogue(self) -> Catalogue:
        """What can be named in a suite, read from disk unless a package or a plugin's file has changed."""
        catalogue = self.remembered
        if catalogue is None:
            catalogue = Catalogue()
            for name in self.entry_points:
                self._enter(name, catalogue)
            catalogue.broken.update(self.troubles)
            keep(self._kept, catalogue.to_json())
        for name in self.files:
            self._enter(name, catalogue)
            if name in catalogue.broken:
                raise UserError(f"{self.files[name]}: {catalogue.broken[name]}")
        return catalogue

    @property
    def remembered(self) -> Catalogue | None:
        """The catalogue of what is installed if it is kept, for which nothing is imported; else None."""
        known = kept(self._kept)
        return None if known is None else Catalogue.from_json(known)

    @cached_property
    def _kept(self) -> Path:
        return cache_file("catalogue", self._stamp())

    def _enter(self, plugin: str, catalogue: Catalogue) -> None:
        try:
            made = self.load(plugin)
        except UserError as error:
            catalogue.broken[plugin] = str(error)
            return
        catalogue.add(component for _, component in made.values())
        module = self.manager.get_plugin(plugin)
        if any(hasattr(module, hook) for hook in LIFECYCLE):
            catalogue.lifecycle.append(plugin)

    def load(self, plugin: str) -> dict[tuple[str, str], tuple[Callable, Component]]:
        """Import a plugin and collect what it registers, by (kind, name). Raises UserError naming its package."""
        if plugin in self._makers:
            return self._makers[plugin]
        if plugin in self.files and not os.path.isfile(self.files[plugin]):
            raise UserError("there is no such file")
        package = self.package(plugin)
        try:
            module = self._import(plugin)
            if wrong := list(faults(module)):
                raise UserError("; ".join(wrong))
            self.manager.register(module, plugin)
            self.manager.check_pending()
            made = self._collect(plugin, package, module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a stranger's module raises is its own fault, and nobody else's
            if self.manager.has_plugin(plugin):
                self.manager.unregister(name=plugin)
            why = str(error) if isinstance(error, UserError | Unfit) else told(error)
            raise UserError(f"plugin {plugin!r} of {package} does not load: {why}") from error
        self._makers[plugin] = made
        return made

    def _import(self, plugin: str) -> ModuleType:
        if plugin not in self.files:
            return importlib.import_module(self.entry_points[plugin].module)
        file = self.files[plugin]
        name = f"fedbench_plugin_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError("a plugin's file is called *.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def _collect(self, plugin: str, package: str, module: ModuleType) -> dict:
        others = [other for other in self.manager.get_plugins() if other is not module]
        made: dict[tuple[str, str], tuple[Callable, Component]] = {}

        def register(kind: str, name: str, make: Callable, **facts: Any) -> None:
            if (kind, name) in made:
                raise Unfit(f"it registers the {kind} {name!r} twice; give one of them another name")
            made[kind, name] = make, Component.of(kind, name, make, plugin, package, **facts)

        for kind, hook in KINDS.items():
            self.manager.subset_hook_caller(hook, others)(register=functools.partial(register, kind))
        return made

    def again(self, plugin: str) -> Registry:
        """The same plugins, one of them imported once more: what its module has come to keep is not there."""
        file = self.files.get(plugin)
        module = f"fedbench_plugin_{file.stem}" if file else self.entry_points[plugin].module
        top = module.partition(".")[0]
        own = module if top in ("fedbench", "fedbench_plugins") else top  # what is shared by all plugins stays
        kept = {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith(f"{own}.")}
        made = copy.copy(self)
        made._makers = {name: makers for name, makers in self._makers.items() if name != plugin}
        made.manager = pluggy.PluginManager(GROUP)
        made.manager.add_hookspecs(hookspecs)
        try:
            made.load(plugin)
        finally:
            sys.modules.update(kept)
        return made

    def component(self, kind: str, ref: Mapping[str, Any]) -> tuple[Callable, Component]:
        """The maker behind a resolved reference `{name: ..., option: value}`, importing its plugin."""
        component = self.catalogue.find(kind, ref["name"])
        return self.load(component.plugin)[kind, component.name]

    def make(self, kind: str, ref: Mapping[str, Any], **given: Any) -> Any:
        """Make a component of the options in `ref`, and of what the core gives if it is asked for. Raises Misfit."""
        maker, component = self.component(kind, ref)
        options = copy.deepcopy({key: value for key, value in ref.items() if key != "name"})  # theirs to change
        if component.name != ref["name"]:  # a name left to the component `timm`
            options["name"] = ref["name"]
        if kind == "allocation":  # what is registered is the allocation itself
            allocate = _Allocation(maker, **options)
            allocate.exact, allocate.name = component.exact, f"the allocation {component.name!r} of {component.package}"
            return allocate
        return fit(component, maker(**options, **_accepted(maker, given)))

    @contextmanager
    def blaming(self, kind: str, name: str) -> Iterator[None]:
        """What breaks inside a component is told as its package's fault, in one line: a UserError."""
        try:
            yield
        except (UserError, NotApplicable):
            raise
        except Exception as error:
            component = self.catalogue.find(kind, name)
            raise UserError(f"the {kind} {name!r} of {component.package} broke: {told(error)}") from error

    def tell(self, hook: str, **facts: Any) -> None:
        """Call a life-cycle hook of every plugin; one that raises is named on stderr, and spoils no result."""
        for plugin in self.catalogue.lifecycle:
            try:
                self.load(plugin)
                module = self.manager.get_plugin(plugin)
                others = [other for other in self.manager.get_plugins() if other is not module]
                self.manager.subset_hook_caller(hook, others)(**facts)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever a stranger's module raises
                print(f"plugin {plugin!r} of {self.package(plugin)}: {hook} broke: {told(error)}", file=sys.stderr)

    def package(self, plugin: str) -> str:
        """The distribution a plugin comes from, or the file."""
        return str(self.files[plugin]) if plugin in self.files else _package(self.entry_points[plugin])

    def label(self, plugin: str) -> str:
        """What a plugin is called in an identity: its package, or its own name where it is a file."""
        return plugin if plugin in self.files else _package(self.entry_points[plugin])

    def version(self, plugin: str) -> str:
        """What identifies the code of a plugin: its package's version, with a hash of its files where it is installed
        editable; or a file's hash. fedbench's own version stands for its own code."""
        if plugin in self.files:
            return "sha256:" + hash_of_file(self.files[plugin])[:16]
        point = self.entry_points[plugin]
        version, package = _version(point) or "unknown", _package(point)
        if package == "fedbench" or not is_editable(point.dist):
            return version
        if package not in self._sources:  # once for all plugins of a package, which share its line in an identity
            own = [other.module for other in self.entry_points.values() if _package(other) == package]
            self._sources[package] = hash_of_sources(map(_origin, own))[:16]
        return f"{version}+sha256:{self._sources[package]}"

    def module_file(self, plugin: str) -> str | None:
        """Where a plugin's code lies, found without importing it."""
        return str(self.files[plugin]) if plugin in self.files else _origin(self.entry_points[plugin].module)

    def _stamp(self) -> list[Any]:
        """What changes when a package or a plugin's file does."""
        facts: list[Any] = [__version__, sys.version, self.troubles]
        facts += [_file_stamp(module) for module in ("fedbench.registry.catalogue", "fedbench.options")]
        for point in self.entry_points.values():
            facts.append([point.name, point.value, _package(point), self.version(point.name)])
            facts.append(_file_stamp(point.module))
        return facts


class _Allocation(functools.partial[Any]):
    """An allocation with its options; `exact` and `name` are what the core asks of it besides."""

    exact: bool
    name: str


def dataset_ref(data: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration's `data` section that makes the data set: its name and its own options."""
    return {key: value for key, value in data.items() if key not in OF_SECTION}


def dataset_of(data: Mapping[str, Any], registry: Registry, image_size: int) -> Dataset:
    """The data set of a configuration's `data` section, at its own image size or else the given one."""
    return registry.make("dataset", dataset_ref(data), image_size=data.get("image_size") or image_size)


def _by_name(files: Sequence[str]) -> dict[str, Path]:
    """Plugin files by file name, whose suffix keeps them apart from installed plugins. UserError for equal ones."""
    named: dict[str, Path] = {}
    for file in files:
        try:
            path = Path(file).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # too long, with a NUL, or a link to itself
            raise UserError(f"--plugin {file!r:.80}: no file can have that path ({error})") from error
        if named.setdefault(path.name, path) != path:
            raise UserError(f"--plugin: {named[path.name]} and {path} have the same name; rename one of them")
    return named


def _accepted(maker: Callable, given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key in inspect.signature(maker).parameters}


def _package(point: EntryPoint) -> str:
    return (entrypoints.named(point.dist)[0] if point.dist else "") or "an unknown package"


def _version(point: EntryPoint) -> str | None:
    return entrypoints.named(point.dist)[1] if point.dist else None


def _origin(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except KeyboardInterrupt:
        raise
    except BaseException:  # the package around it is imported, and may raise anything; `load` will tell
        return None
    return spec.origin if spec else None


def _file_stamp(module: str) -> list[int] | None:
    file = _origin(module)
    if file is None or not os.path.isfile(file):
        return None
    stat = os.stat(file)
    return [stat.st_mtime_ns, stat.st_size]
