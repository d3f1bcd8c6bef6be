"""What is installed: entry points, package versions and module files, found without importing a plugin."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, EntryPoint, distributions
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path
from typing import Any

OURS = "fedbench"  # what messages and results call the package whose plugins may be imported in any process
DISTRIBUTION = "fedbench-heft"  # by which it is installed: on PyPI, `fedbench` is another project's
# The modules that make a component's facts from its signature, its docstring and its declarations.
DESCRIBING = ("fedbench.registry.catalogue", "fedbench.options", "fedbench.schema")
BUILT_IN = Path(__file__).with_name("built_in.json")  # what fedbench's own plugins register
NOUNS = {"fedbench": "plugin", "fedbench.trackers": "tracker", "fedbench.commands": "command"}  # by group
MOST = 5000  # files of a package that are read; a module in a folder of data is not the data's hash


def points(group: str) -> tuple[list[EntryPoint], dict[str, str]]:
    """The entry points of a group in the order of sys.path, and what is wrong with others, by their name or place.

    Of two installations of one package the first counts, as it does for imports.
    """
    found: list[EntryPoint] = []
    unusable: dict[str, str] = {}
    seen: set[str] = set()
    for dist in distributions():
        try:
            chosen = dist.entry_points.select(group=group)
            name = _normalized(dist) if chosen else ""
        except Exception as error:  # of importlib.metadata, which trusts what is installed
            path = getattr(dist, "_path", "an unknown package")
            unusable[str(path)] = f"the metadata in {path} cannot be read: {type(error).__name__}: {error}"
            continue
        if not chosen or name in seen:
            continue
        seen.add(name)
        for point in chosen:
            if _names_module(point):
                found.append(point)
            else:
                unusable[point.name] = f"the entry point of {name!r:.80} names no module, but {point.value!r:.80}"
    return found, unusable


def by_name(group: str, taken: Collection[str] = ()) -> tuple[dict[str, EntryPoint], dict[str, str]]:
    """The entry points of a group by name, where no other package takes the place of one of fedbench's.

    Args:
        group: of entry points.
        taken: names that fedbench itself has, without an entry point.

    Returns:
        The entry points, and why others are not used, by their name or place.
    """
    found, unusable = points(group)
    chosen: dict[str, EntryPoint] = {}
    for point in sorted(found, key=lambda point: package_of(point) != OURS):
        first = None if point.name in taken else chosen.setdefault(point.name, point)
        if first is None or first.value != point.value:
            what = f"two packages install a {NOUNS.get(group, 'plugin')} called {point.name!r}"
            names = package_of(first) if first else OURS, package_of(point)
            key = f"{point.name} of {names[1]}" if point.name in unusable else point.name
            unusable[key] = f"{what}: {' and '.join(names)}; the one of {names[0]} is used"
    return chosen, unusable


@cache
def named(dist: Distribution) -> tuple[str, str]:
    """(name, version); kept, because importlib.metadata reads and parses a file each time it is asked for either."""
    return dist.name, dist.version


def package_of(point: EntryPoint) -> str:
    """The name of the distribution that installs an entry point; OURS for this one."""
    name = named(point.dist)[0] if point.dist else ""
    if name == DISTRIBUTION:
        return OURS
    return f"another project's {name}" if name == OURS else name or "an unknown package"


def version_of(point: EntryPoint) -> str:
    """The version of that distribution."""
    return (named(point.dist)[1] if point.dist else None) or "unknown"


def is_editable(dist: Distribution | None) -> bool:
    """Whether pip uses a package where it lies (PEP 610)."""
    with suppress(Exception):  # of importlib.metadata, which trusts what is installed
        text = dist.read_text("direct_url.json") if dist else None
        return bool(text and json.loads(text).get("dir_info", {}).get("editable"))
    return False


def origin(module: str) -> str | None:
    """The file of a module, whose parent packages are not imported either; None where there is none."""
    top, *steps = module.split(".")
    try:
        spec: ModuleSpec | None = find_spec(top)
        for step in steps:
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(f"{spec.name}.{step}", list(spec.submodule_search_locations))
    except (ImportError, ValueError, OSError):
        return None
    return spec.origin if spec else None


def file_stamp(module: str) -> list[int] | None:
    """What changes when a module's file does; None where there is none."""
    file = origin(module)
    if file is None or not os.path.isfile(file):
        return None
    stat = os.stat(file)
    return [stat.st_mtime_ns, stat.st_size]


def shipped(point: EntryPoint) -> dict[str, Any] | None:
    """What a plugin of fedbench registers, as `docs/sitemaking/shipped.py` has written it; None where its code is
    another now."""
    known, here = _built_in(), {"described": hash_of(*DESCRIBING), "code": hash_of(point.value)}
    found = known["plugins"].get(point.name) if known["described"] == here["described"] else None
    return found["registers"] if found and found["code"] == here["code"] else None


@cache
def _built_in() -> dict[str, Any]:
    return dict(json.loads(BUILT_IN.read_bytes()))


@cache
def hash_of(*modules: str) -> str:
    """A hash of the names and files of modules, without their line breaks, which git may change."""
    texts = (b"".join(Path(file).read_bytes().splitlines()) for file in map(origin, modules) if file)
    return hashlib.sha256(b"\0".join([*map(str.encode, modules), *texts])).hexdigest()


def hash_of_sources(modules: Iterable[str | None]) -> str:
    """A hash over the files of these modules, each given by its file, and of the packages that they stand in.

    The code of an editable package changes under one version, so that this hash is a part of its version.
    """
    found = hashlib.sha256()
    for root in sorted({_root(Path(module)) for module in modules if module}):
        for file in _files(root):
            found.update(file.relative_to(root.parent).as_posix().encode() + b"\0")
            with suppress(OSError):  # a link into nowhere
                found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def sources_of(file: Path) -> dict[str, bytes]:
    """A plugin's file and the modules that it imports, be it by one another: those next to it, and others that are not
    installed, as on PYTHONPATH; by their paths below the folder that they are imported from."""
    found, waiting = {file.name: file.read_bytes()}, [file]
    while waiting:
        for name in _imports(waiting.pop().read_bytes()) - {OURS, "fedbench_plugins"}:
            root = _module(name, file.parent)
            for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
                if (key := path.relative_to(root.parent).as_posix()) not in found:
                    found[key] = path.read_bytes()
                    waiting.append(path)
    return found


def hash_of_plugin(file: Path) -> str:
    """A hash of a plugin's sources."""
    found = sources_of(file)
    if len(found) == 1:
        return hashlib.sha256(found[file.name]).hexdigest()
    hashes = {key: hashlib.sha256(text).hexdigest() for key, text in found.items()}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _module(name: str, folder: Path) -> Path:
    """The file or the folder of a module that a plugin file imports; in `folder`, as for one that is nowhere, unless it
    is elsewhere on sys.path and not installed."""
    package, module = folder / name, folder / f"{name}.py"
    if module.is_file() and not (package / "__init__.py").is_file():
        return module
    elsewhere = Path("" if package.is_dir() or name in (OURS, "fedbench_plugins") else origin(name) or "")
    is_installed = {"site-packages", "dist-packages"} & set(elsewhere.parts)
    if is_installed or not elsewhere.is_file() or elsewhere.is_relative_to(get_path("stdlib")):
        return package
    return _root(elsewhere)


@lru_cache(256)
def _imports(source: bytes) -> frozenset[str]:
    """The top-level names that a module imports, wherever in it; none of one that is no Python."""
    found = set[str]()
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                found |= {str(name.value) for name in node.args if isinstance(name, ast.Constant)}
    return frozenset(name.partition(".")[0] for name in found if name.partition(".")[0].isidentifier())


def _root(module: Path) -> Path:
    """The outermost package that a module's file stands in; the file itself where it stands in none."""
    root = module
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    return root


def _files(root: Path) -> Iterator[Path]:
    """Every file of a package in order, without what Python and editors leave there."""
    if root.is_file():
        yield root
        return
    count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith((".pyc", "~")) and (count := count + 1) <= MOST:
                yield Path(folder) / name


def _normalized(dist: Distribution) -> str:
    """The name as pip compares names. Fails where the metadata, the version among them, cannot be read."""
    name, _ = named(dist)
    return str(name or getattr(dist, "_path", "")).lower().replace("-", "_").replace(".", "_")


def _names_module(point: EntryPoint) -> bool:
    matched = point.pattern.match(point.value)
    return matched is not None and all(step.isidentifier() for step in matched["module"].split("."))
