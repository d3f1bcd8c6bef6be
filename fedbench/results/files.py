"""The files of a finished cell: what its manifest says of them, and whether they still are those."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import cannot_write, hash_of_file
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, DROPPED
from fedbench.results.packed_tables import packed_tables, suite_folder_of
from fedbench.results.tables import arrow_schema, read_table

if TYPE_CHECKING:
    import pyarrow

TABLES = tuple(f"{kind}.parquet" for kind in COLUMNS)
OF_ANY_VERSION = (*TABLES, *(f"{kind}.parquet" for kind in DROPPED))
TENSORS, STRUCTURE = "state.safetensors", "state.json"
ALWAYS = ("eval.parquet", "rounds.parquet")  # what a cell of any fedbench has
MISSING = "missing"
UNLISTED = "not one of the files that its manifest lists"
MOST_HASHED = 2**26  # bytes; of larger files the size is compared alone, so that a look at many cells takes no time


def described(folder: Path) -> dict[str, dict[str, Any]]:
    """Size in bytes and hash of a cell's tables and state, as its manifest holds them."""
    files = [folder / name for name in (*TABLES, TENSORS, STRUCTURE)]
    return {file.name: {"size": file.stat().st_size, "sha256": hash_of_file(file)} for file in files if file.is_file()}


def damage(folder: Path, manifest: Mapping[str, Any], most: int | None = MOST_HASHED) -> dict[str, str]:
    """What is wrong with the files of a finished cell, by name: a table that is missing, or any file that is not as
    it was written. The state may be deleted.

    A table of a packed cell is lost with the file that it is packed in. A cell of an older fedbench, whose manifest
    describes no files, needs its tables, not empty. most: as of `fault`.
    """
    if "tables" in manifest:
        found = {name: fault(folder / name, facts, most) for name, facts in manifest.get("files", {}).items()}
        lost = packed_tables(suite_folder_of(folder)).lost(manifest)
        packed = {f"{kind}.parquet": f"lost with {wrong.partition(': ')[0]}" for kind, wrong in lost.items()}
        return {name: wrong for name, wrong in found.items() if wrong and wrong != MISSING} | packed
    if not (files := manifest.get("files")):
        return {name: "missing or empty" for name in ALWAYS if not _has_content(folder / name)}
    found = {name: fault(folder / name, facts, most) for name, facts in files.items()}
    unlisted = {name: UNLISTED for name in TABLES if name not in files and (folder / name).is_file()}
    return {name: wrong for name, wrong in found.items() if wrong and (name in TABLES or wrong != MISSING)} | unlisted


def fault(path: Path, facts: Mapping[str, Any], most: int | None = MOST_HASHED) -> str | None:
    """In what a file is not as it was written, by its size and hash; None where it is. most: bytes of a file that is
    hashed at all, None for any, where all of it is read anyway."""
    if not path.is_file():
        return MISSING
    if (size := path.stat().st_size) != facts["size"]:
        return f"torn ({size} bytes, and not {facts['size']})"
    hashed = most is None or size <= most
    return "torn (its hash is another)" if hashed and hash_of_file(path) != facts["sha256"] else None


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def cleared(folder: Path, manifest: Mapping[str, Any] | None) -> list[str]:
    """Make a cell's folder ready to be computed into: what a killed process left half written is deleted, what is
    damaged of a finished cell is set aside, with a line on each of those. manifest: None where it has none that can be
    believed."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
    lines = []
    if manifest is None and os.path.lexists(folder / "manifest.json"):
        kept = set_aside(folder / "manifest.json", folder).name
        lines.append(f"{folder / 'manifest.json'}: damaged (its checksum does not match). Set aside as {kept}.")
        for name in TABLES:  # of which nobody knows whose they are
            (folder / name).unlink(missing_ok=True)
    manifest = manifest or {}
    for name, wrong in damage(folder, manifest).items() if manifest.get("status") == "finished" else ():
        there = os.path.lexists(folder / name)
        if not there and "tables" in manifest:  # it was packed: the run says which of the suite's tables is damaged
            continue
        kept = f" Set aside as {set_aside(folder / name, folder).name}." if there else ""
        lines.append(f"{folder / name}: {wrong}.{kept}")
    return lines


def set_aside(path: Path, folder: Path) -> Path:
    """Move what is torn to a hidden name in `folder`, where no reader looks; returns that. Raises UserError."""
    aside = folder / f".torn-{path.name}-{secrets.token_hex(4)}"
    try:
        os.rename(path, aside)
    except OSError as error:
        raise cannot_write(aside, error) from error
    return aside


def has_table(kind: str, folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a cell's table is there, or should be by its manifest."""
    name = f"{kind}.parquet"
    if "tables" in manifest:  # it is packed
        return kind in manifest["tables"]
    return name in manifest.get("files", ()) or (folder / name).is_file()


def checked_table(kind: str, folder: Path, manifest: Mapping[str, Any]) -> pyarrow.Table:
    """Raises: UserError where it is not as it was written; a changed bit could pass for another number."""
    if "tables" in manifest:
        table = packed_tables(suite_folder_of(folder)).rows(kind, manifest["id"])
        return empty_table(kind) if table is None else table
    path, files = folder / f"{kind}.parquet", manifest.get("files")
    wrong = fault(path, files[path.name], None) if files and path.name in files else UNLISTED if files else None
    if wrong:
        raise UserError(f"{path}: {wrong}.\nRun the suite again: only that cell is computed again.")
    return read_table(kind, path)


def read_rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of one table of a cell, or of its checkpoint, whether it is packed or not. Raises: UserError."""
    if not (path := Path(folder) / f"{kind}.parquet").is_file():
        packed = packed_tables(suite_folder_of(folder)).rows(kind, Path(folder).name)
        if packed is not None:
            return packed.to_pylist()
    return read_table(kind, path).to_pylist()


def empty_table(kind: str) -> pyarrow.Table:
    """A table without rows, made of no batches: Arrow's arrays, empty ones too, import pandas."""
    from pyarrow import Table

    return Table.from_batches([], schema=arrow_schema(kind))
