"""The files of a cell: its manifest, whether the others still are those that it lists, and digests of their content."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import cannot_write, hash_of_file, hash_of_json
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, DROPPED, STATUSES, TIMINGS, UNHASHED
from fedbench.results.documents import TornFile, check_manifest, read_sealed, write_json
from fedbench.results.identity import identity_of, read_by_its_method
from fedbench.results.index import CELLS
from fedbench.results.packed_tables import packed_tables, suite_folder_of
from fedbench.results.tables import arrow_schema, read_table, without_defaults

if TYPE_CHECKING:
    import pyarrow

MANIFEST = "manifest.json"
CHECKPOINT = "checkpoint"  # the folder next to it, from which a run resumes
MEND = "Run the suite again: only that cell is computed again."

HASHED = ("config", "fingerprints", "versions")  # what the id is a hash of


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """manifest.json of one cell; the result version is added. Raises: ValueError for an unknown status."""
    if manifest.get("status") not in STATUSES:
        raise ValueError(f"status {manifest.get('status')!r} is not one of {', '.join(STATUSES)}")
    write_json(Path(folder) / MANIFEST, manifest)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What is known of a cell by its folder: its manifest.json, else what is packed of it, or None.

    Raises: UserError where it cannot be used: its seal, its id or the name of its folder does not fit what it says.
    """
    path = Path(folder) / MANIFEST
    try:
        manifest = read_sealed(path, ("status", "id", *HASHED), MEND)
    except UserError:
        if path.is_file():
            raise
        return packed_tables(suite_folder_of(path.parent)).manifest(path.absolute().parent.name)
    try:
        check_manifest(manifest)
    except TypeError as error:
        raise TornFile(f"{path}: not a manifest of fedbench ({error}).\n{MEND}") from error
    if wrong := _mistaken(manifest, path):
        raise TornFile(f"{path}: {wrong}.\n{MEND}")
    return manifest


def believed_manifest(folder: Path) -> dict[str, Any] | None:
    """As `read_manifest`, and None where it says nothing that can be believed: a run computes that cell again."""
    try:
        return read_manifest(folder)
    except TornFile:
        return None


def _mistaken(manifest: Mapping[str, Any], path: Path) -> str | None:
    """Why a manifest cannot be that of the cell it names; None where it is."""
    id = manifest["id"]
    if (own := identity_of(manifest)) != id:
        return f"its id is {id:.80}, and {own} that of the configuration, fingerprints and versions it tells"
    folder = path.absolute().parent
    if folder.parent.name == CELLS and folder.name != id:
        return f"it is of the cell {id}, and lies in the folder of {folder.name}"
    return None


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


def manifest_content(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says, without timings and without the settings that the cell's method does not read."""
    content = {name: value for name, value in manifest.items() if name not in TIMINGS["manifest"]}
    content.pop("result_version", None)
    return {**content, "config": read_by_its_method(manifest)}


def digest_of_cell(folder: Path, manifest: Mapping[str, Any]) -> str:
    """SHA-256 in hex over everything that a cell says but the tables of UNHASHED.

    Equal for two runs of one cell, whatever the number of workers or the interruptions. It is computed of a packed cell
    too: the `digest` that its manifest has says what the tables were when it was packed, and not what they are.

    Raises:
        UserError: where a table is not as it was written.
    """
    kinds = [kind for kind in COLUMNS if kind not in UNHASHED and has_table(kind, folder, manifest)]
    digest = digest_of(manifest, ((kind, checked_table(kind, folder, manifest)) for kind in kinds))
    if manifest.get("digest", digest) != digest:
        raise UserError(f"{folder}: its tables are not those that were packed: they have another digest.")
    return digest


def digest_of(manifest: Mapping[str, Any], tables: Iterable[tuple[str, pyarrow.Table]]) -> str:
    """As `digest_of_cell`, of its tables by kind, in the order of COLUMNS."""
    found = hash_of_json(manifest_content(manifest))
    ignored = manifest.get("ignored", ())
    for kind, table in tables:
        if kind not in UNHASHED:
            found += f" {kind} {digest_of_table(kind, table, ignored)}"
    return hashlib.sha256(found.encode()).hexdigest()


def digest_of_table(kind: str, table: pyarrow.Table, ignored: Iterable[str] = ()) -> str:
    """SHA-256 in hex over a table of one cell, without timings and columns that say no more than others.

    Where the cell's method ignores capacities, those of its rounds are those of any of its scenarios, and left out.
    """
    silent = {*TIMINGS[kind], *(["capacity"] if kind == "rounds" and "capacities" in ignored else [])}
    found = hashlib.sha256()
    for name in without_defaults(kind, table).column_names:
        if name not in silent:
            found.update(f"{name} {len(table)} ".encode())
            _add(found, table[name].combine_chunks())
    return found.hexdigest()


def _add(found: Any, column: pyarrow.Array) -> None:
    """Feed the values of a column to a hash; all NaN are one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if column.null_count:
        found.update(_bytes(column.is_valid()))
        column = column.drop_null()
    if pa.types.is_list(kind):
        found.update(_bytes(pc.list_value_length(column)))
        _add(found, column.flatten())
    elif pa.types.is_string(kind):
        found.update(_bytes(pc.binary_length(column)))
        found.update(b"".join(value.as_buffer() or b"" for value in column))
    else:
        found.update(_bytes(column))


def _bytes(column: pyarrow.Array) -> bytes:
    """The numbers of a column; all NaN are one."""
    import numpy as np

    values = column.to_numpy(zero_copy_only=False)
    return (np.where(np.isnan(values), np.nan, values) if values.dtype.kind == "f" else values).tobytes()
