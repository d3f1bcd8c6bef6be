"""Packages that are installed editable: their code changes under one version, and so its hash is a part of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution
from pathlib import Path

MOST = 5000  # files of a package that are read; a module in a folder of data is not the data's hash


def is_editable(dist: Distribution | None) -> bool:
    """Whether pip was told to use a package where it lies (PEP 610)."""
    with suppress(Exception):  # of importlib.metadata, which trusts what is installed
        text = dist.read_text("direct_url.json") if dist else None
        return bool(text and json.loads(text).get("dir_info", {}).get("editable"))
    return False


def hash_of_sources(modules: Iterable[str | None]) -> str:
    """A hash over the files of these modules, each given by its file, and of the packages that they stand in."""
    found = hashlib.sha256()
    for root in sorted({_root(Path(module)) for module in modules if module}):
        for file in _files(root):
            found.update(file.relative_to(root.parent).as_posix().encode() + b"\0")
            with suppress(OSError):  # a link into nowhere
                found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


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
