"""The plugin manager: entry points, files named on the command line, and the catalogue of what they register."""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from fedbench import __version__, hookspecs
from fedbench.disk import as_written, cache_file, keep, kept
from fedbench.errors import NotApplicable, UserError, summary_of, text_of
from fedbench.machine import package_version
from fedbench.registry.catalogue import KINDS, Catalogue, Component, Unfit, references
from fedbench.registry.contracts import HOOKS, fit, hook_faults
from fedbench.registry.installed import (
    DESCRIBING,
    NOUNS,
    OURS,
    by_name,
    file_stamp,
    hash_of_plugin,
    hash_of_sources,
    is_editable,
    origin,
    package_of,
    shipped,
    version_of,
)
from fedbench.words import is_text, visible

if TYPE_CHECKING:
    from fedbench.types import Dataset

GROUP = "fedbench"
# Keys of a `data` section that are not options of the data set itself.
OF_SECTION = ("partition", "normalize", "image_size", "max_length", "proxy", "augment")
LIFECYCLE = [name for name in HOOKS if name not in KINDS.values()]
READING = 30.0  # seconds that a third-party plugin may take to be imported and to register its components
TRACKING = 120.0  # seconds that a third-party tracker may take at the beginning and at the end of a suite

_lost_here = set[Path]()  # what the cache has of plugins that this process found lost, and does not read again


def _supervisor() -> ModuleType:
    """The module that calls third-party code in child processes, which most commands never do."""
    return importlib.import_module("fedbench.processes.supervisor")


class Registry:
    """Everything installed under the entry-point group `fedbench`, and `files` given by `--plugin`.

    What exists is known from the catalogue, kept on disk. Third-party plugins are imported in child processes alone, to
    read what they register. A plugin is imported here when one of its components is made.
    """

    def __init__(
        self,
        files: Sequence[str] = (),
        *,
        in_place: bool = False,
        timeout: float | None = None,
        reading: float | None = None,
        known: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Args:
        files: plugin files.
        in_place: whether this process may import third-party plugins to read what they register, as workers may.
        timeout: seconds that a child process may take to read one, or to give a fact about one; by default READING,
            and as `CachedFacts` says.
        reading: seconds that it may take to read one, where they differ from those for facts.
        known: what third-party plugins register, as `found` of another process's registry has it.
        """
        self.in_place, self.timeout = in_place, timeout
        self.reading = reading or timeout or READING
        self.entry_points, self.troubles = by_name(GROUP)
        self.files = _by_name(files)
        self.lost: dict[str, str] = {}  # plugins that ended or hung the process that imported them, and how
        self._makers: dict[str, dict[tuple[str, str], tuple[Callable, Component]]] = {}
        self._sources: dict[str, str] = {}  # hashes of packages that are installed editable
        self.found = dict(known)  # what third-party plugins register
        self._beside: dict[str, Any] = {}  # the processes in which a worker calls hooks of plugins that are not loaded
        self.manager = pluggy.PluginManager(GROUP)
        self.manager.add_hookspecs(hookspecs)

    def refused(self, commands: Collection[str]) -> list[str]:
        """Why entry points are not used, those of trackers and commands too. commands: the names of fedbench's own."""
        found = [by_name(group, commands if group == "fedbench.commands" else ())[1] for group in NOUNS]
        return list(dict.fromkeys(why for of_group in found for why in of_group.values()))

    def is_third_party(self, plugin: str) -> bool:
        """Whether a plugin is not fedbench's own. Trackers of fedbench are given as files, and are its own."""
        if plugin in self.files:
            return not any(self.files[plugin].is_relative_to(folder) for folder in _own_folders())
        return package_of(self.entry_points[plugin]) != OURS

    def third_party(self, config: Mapping[str, Any]) -> list[Component]:
        """The third-party components that a configuration names. Raises UserError for one that nobody has."""
        found = [self.catalogue.find(kind, ref["name"]) for kind, ref in references(config)]
        distinct = {(component.kind, component.name): component for component in found}
        return [component for component in distinct.values() if self.is_third_party(component.plugin)]

    @cached_property
    def catalogue(self) -> Catalogue:
        """What can be named in a suite, read from disk unless a package or a plugin's file has changed.

        Raises UserError for a plugin file that does not load. One that ends or hangs the child process that reads it is
        listed under `broken`, as installed plugins are that do not load.
        """
        catalogue = Catalogue()
        for name in self.own:
            self._enter(name, catalogue)
        catalogue.broken.update(self.troubles)
        for name in self._others:
            self._enter(name, catalogue)
            if name in self.files and name in catalogue.broken and name not in self.lost:
                raise UserError(f"{self.files[name]}: {catalogue.broken[name]}")
        return catalogue

    @property
    def own(self) -> list[str]:
        """The plugins that fedbench brings along, by their names."""
        return [name for name in self.entry_points if not self.is_third_party(name)]

    @property
    def _others(self) -> list[str]:
        return [*(name for name in self.entry_points if self.is_third_party(name)), *self.files]

    def _file_of(self, plugin: str) -> Path:
        """Where the cache has what a plugin registers."""
        return cache_file("catalogue", [plugin, self._stamp(plugin)])

    def _enter(self, plugin: str, catalogue: Catalogue) -> None:
        try:
            if not self.is_third_party(plugin):
                found = self._built_in(plugin)
            elif self.in_place:
                found = self.found.get(plugin) or self._kept_of(plugin) or self.registrations_here(plugin)
            else:
                found = self.found[plugin] = self.registrations(plugin)
            self._enter_registrations(plugin, found, catalogue)
        except UserError as error:
            catalogue.broken[plugin] = str(error)
        except _supervisor().ChildFailed as error:
            found = self.found[plugin] = {"broken": f"the process that imported it {error.reason}", "lost": True}
            keep(self._file_of(plugin), found)
            _lost_here.add(self._file_of(plugin))
            self._enter_registrations(plugin, found, catalogue)

    def _built_in(self, plugin: str) -> Mapping[str, Any]:
        """What a plugin of fedbench registers: as it is shipped; where its code was edited since, from the cache, or by
        importing it."""
        point = self.entry_points.get(plugin)  # none of a tracker, which is given as a file
        if point and (found := shipped(point)):
            return found
        if (found := self._kept_of(plugin)) is None:
            found = self.registrations_here(plugin)
            keep(self._file_of(plugin), found)
        return found

    def _kept_of(self, plugin: str) -> dict[str, Any] | None:
        try:
            known = kept(self._file_of(plugin))
        except OSError as error:
            raise UserError(f"there is no such file that can be read ({error.strerror})") from error
        return None if known is None else dict(known)

    def _enter_registrations(self, plugin: str, found: Mapping[str, Any], catalogue: Catalogue) -> None:
        package = self.package(plugin)
        if found.get("lost"):  # a file with the same text elsewhere has the same place in the cache
            self.lost[plugin] = f"plugin {plugin!r} of {package} does not load: {found['broken']}"
            catalogue.lost[plugin] = package
        if "broken" in found:
            catalogue.broken[plugin] = self.lost.get(plugin, found["broken"])
            return
        components = [Component.from_json({**facts, "package": package}) for facts in found["components"]]
        catalogue.add(components, by_user=plugin in self.files)
        if found["lifecycle"]:
            catalogue.lifecycle.append(plugin)

    def registrations(self, plugin: str) -> dict[str, Any]:
        """What a third-party plugin registers, from the cache or from a child process, see `registrations_here`.

        A failure is kept of installed plugins that raise. Raises UserError, ChildFailed.
        """
        known = self._kept_of(plugin)
        if known and (not known.get("lost") or self._file_of(plugin) in _lost_here):
            return known
        asked = {"plugin": plugin, "files": [str(path) for path in self.files.values()]}
        found: dict[str, Any] = _supervisor().call("fedbench.registry.facts:registrations", asked, timeout=self.reading)
        if "broken" not in found or plugin not in self.files:
            keep(self._file_of(plugin), found)
        return found

    def registrations_here(self, plugin: str) -> dict[str, Any]:
        """What a plugin registers, by importing it in this process: its `components` as JSON, and whether it has hooks
        of the `lifecycle`. Raises UserError."""
        made = self.load(plugin)
        module = self.manager.get_plugin(plugin)
        return {
            "components": [component.to_json() for _, component in made.values()],
            "lifecycle": any(hasattr(module, hook) for hook in LIFECYCLE),
        }

    def load(self, plugin: str) -> dict[tuple[str, str], tuple[Callable, Component]]:
        """Import a plugin and collect what it registers, by (kind, name). Raises UserError naming its package."""
        if plugin in self._makers:
            return self._makers[plugin]
        if plugin in self.files and not os.path.isfile(self.files[plugin]):
            raise UserError("there is no such file")
        package = self.package(plugin)
        try:
            module = self._import(plugin)
            if wrong := list(hook_faults(module)):
                raise UserError("; ".join(wrong))
            self.manager.register(module, plugin)
            self.manager.check_pending()
            made = self._collect(plugin, package, module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a third-party module raises
            if self.manager.has_plugin(plugin):
                self.manager.unregister(name=plugin)
            why = text_of(error) if isinstance(error, UserError | Unfit) else summary_of(error)
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
        """The maker behind a reference `{name: ..., option: value}`, importing its plugin. Raises UserError."""
        component = self.catalogue.find(kind, ref["name"])
        if component.absent:
            raise UserError(component.absent)
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
        """Turn an exception inside a component into a UserError of one line that names its package."""
        try:
            yield
        except (UserError, NotApplicable):
            raise
        except Exception as error:
            component = self.catalogue.find(kind, name)
            raise UserError(f"the {kind} {name!r} of {component.package} broke: {summary_of(error)}") from error

    def tell(self, hook: str, **facts: Any) -> None:
        """Call a life-cycle hook of every plugin; one that raises is named on stderr, and spoils no result.

        Those of third-party plugins are called in a child process each; a worker calls those of plugins that its cell
        uses by itself, and has one child process for each of the others.
        """
        for plugin in self.catalogue.lifecycle:
            try:
                if not self.is_third_party(plugin) or (self.in_place and plugin in self._makers):
                    self.call_hook(plugin, hook, facts)
                elif self.in_place:
                    self._call_beside(plugin, hook, facts)
                else:
                    files = [str(path) for path in self.files.values()]
                    asked = {"plugin": plugin, "files": files, "hook": hook, "facts": facts}
                    found = _supervisor().call("fedbench.registry.facts:hook", asked, timeout=TRACKING)
                    sys.stderr.write(found["printed"])
                    if found["why"]:
                        raise UserError(found["why"])
            except BaseException as error:  # whatever a third-party module raises
                if isinstance(error, KeyboardInterrupt) and not self.in_place:
                    raise  # Ctrl-C, of which workers hear nothing
                why = text_of(error) if isinstance(error, UserError | _supervisor().ChildFailed) else summary_of(error)
                line = f"plugin {plugin!r} of {self.package(plugin)}: {hook} broke: {why}"
                print(visible(line), file=sys.stderr)

    def call_hook(self, plugin: str, hook: str, facts: Mapping[str, Any]) -> None:
        """Call a life-cycle hook of one plugin in this process."""
        self.load(plugin)
        module = self.manager.get_plugin(plugin)
        others = [other for other in self.manager.get_plugins() if other is not module]
        self.manager.subset_hook_caller(hook, others)(**facts)

    def _call_beside(self, plugin: str, hook: str, facts: Mapping[str, Any]) -> None:
        """Call a hook in a process next to this worker: what the plugin does when it is imported changes no number."""

        def call(asked: dict[str, Any]) -> str:
            try:
                self.call_hook(plugin, asked["hook"], asked["facts"])
            except BaseException as error:  # whatever a third-party module raises
                return str(error) if isinstance(error, UserError) else summary_of(error)
            return ""

        if plugin not in self._beside:
            self._beside[plugin] = importlib.import_module("fedbench.processes.companion").Companion(call)
        try:
            why = self._beside[plugin].ask({"hook": hook, "facts": facts})
        except EOFError:
            why = "the process that called it has ended"
        if why:
            raise UserError(why)

    def close(self) -> None:
        """End the processes in which a worker has called hooks; their threads may have something to send yet."""
        while self._beside:
            self._beside.popitem()[1].close()

    def load_named(self, config: Mapping[str, Any]) -> None:
        """Import the third-party plugins that a configuration names, in an order that no command line changes.

        A worker imports no others. Raises UserError.
        """
        for component in sorted(self.third_party(config), key=lambda component: component.plugin):
            if component.absent:
                raise UserError(component.absent)
            self.load(component.plugin)

    def look_again(self) -> None:
        """Forget the versions of what is installed: the next one that is asked for is read from disk."""
        self._sources.clear()
        package_version.cache_clear()

    def package(self, plugin: str) -> str:
        """The distribution a plugin comes from, or the file."""
        return str(self.files[plugin]) if plugin in self.files else package_of(self.entry_points[plugin])

    def label(self, plugin: str) -> str:
        """What a plugin is called in an identity: its package, or its own name where it is a file."""
        return plugin if plugin in self.files else package_of(self.entry_points[plugin])

    def version(self, plugin: str) -> str:
        """What identifies the code of a plugin: its package's version, with a hash of its files where it is installed
        editable; of a file a hash, with the modules next to it that it imports. fedbench's version is for its own code.
        """
        if plugin in self.files:
            return "sha256:" + hash_of_plugin(self.files[plugin])[:16]
        point = self.entry_points[plugin]
        version, package = version_of(point), package_of(point)
        if package == OURS or not is_editable(point.dist):
            return version
        if package not in self._sources:  # once for all plugins of a package, which share its line in an identity
            own = [other.module for other in self.entry_points.values() if package_of(other) == package]
            self._sources[package] = hash_of_sources(map(origin, own))[:16]
        return f"{version}+sha256:{self._sources[package]}"

    def module_file(self, plugin: str) -> str | None:
        """Where a plugin's code lies, found without importing it."""
        return str(self.files[plugin]) if plugin in self.files else origin(self.entry_points[plugin].module)

    def _stamp(self, plugin: str) -> list[Any]:
        """What changes when a package or a plugin's file does."""
        facts = [__version__, sys.version, self.troubles, *map(file_stamp, DESCRIBING), self.version(plugin)]
        if plugin in self.entry_points:
            point = self.entry_points[plugin]
            facts += [point.value, package_of(point), file_stamp(point.module)]
        return facts


class _Allocation(functools.partial[Any]):
    """An allocation with its options; `exact` and `name` are what the core asks of it besides."""

    exact: bool
    name: str


def idle_plugins(config: Mapping[str, Any], parts: frozenset[str], registry: Registry) -> frozenset[str]:
    """The plugins that only these parts of a configuration name, as an identity calls them."""
    read = {key: value for key, value in config.items() if key not in parts}
    return frozenset(_plugins(config, registry) - _plugins(read, registry))


def _plugins(config: Mapping[str, Any], registry: Registry) -> set[str]:
    """What the plugins of all its components are called in an identity."""
    found = (registry.catalogue.find(kind, ref["name"]).plugin for kind, ref in references(config))
    return {registry.label(plugin) for plugin in found}


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
            path = as_written(Path(file)).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # too long, with a NUL, or a link to itself
            raise UserError(f"--plugin {file!r:.80}: no file can have that path ({error})") from error
        if not is_text(path.name):
            raise UserError(f"--plugin {path}: the name of this file is not UTF-8, as names in results are; rename it")
        if named.setdefault(path.name, path) != path:
            raise UserError(f"--plugin: {named[path.name]} and {path} have the same name; rename one of them")
    return named


def _accepted(maker: Callable, given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key in inspect.signature(maker).parameters}


@functools.cache
def _own_folders() -> list[Path]:
    """Where the code of fedbench and of its own plugins lies."""
    files = [origin(package) for package in (OURS, "fedbench_plugins")]
    return [Path(file).resolve().parent for file in files if file]
