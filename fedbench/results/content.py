"""Digests of the content of cells: without timings, machine and what an older fedbench left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, TIMINGS, UNHASHED
from fedbench.results.files import checked_table, has_table
from fedbench.results.identity import read_by_its_method
from fedbench.results.tables import without_defaults

if TYPE_CHECKING:
    import pyarrow


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
