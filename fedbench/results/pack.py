"""Packing: cells that have ended become rows of their suite's tables."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import hash_of_bytes, write_atomically
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, DROPPED, HALVED, KEPT
from fedbench.results.documents import CONFIG, refuse_links
from fedbench.results.files import (
    CHECKPOINT,
    MANIFEST,
    OF_ANY_VERSION,
    checked_table,
    damage,
    digest_of,
    has_table,
    read_manifest,
)
from fedbench.results.index import CELLS, INDEX, Index, Packed, commit, read_index
from fedbench.results.lock import remove_locks
from fedbench.results.packed_tables import (
    CELL,
    NAMES,
    PLAIN,
    PackedTables,
    columns_of,
    folder_of,
    packed_schema,
    spans,
    without,
)
from fedbench.results.tables import MOST_ROWS, RESULT_VERSION, VERSION_KEY
from fedbench.words import counted

if TYPE_CHECKING:
    import pyarrow

PACKED = re.compile(rf"({'|'.join((CELLS, *COLUMNS, *DROPPED))})-[0-9a-f]{{12}}\.parquet")  # the name of a table's file
LEFT = re.compile(rf"\.({re.escape(INDEX)}|{PACKED.pattern})\.[0-9a-f]{{16}}\.tmp")  # only written under the lock
KINDS = (CELLS, *COLUMNS)
PACKS = (*KEPT, HALVED)  # a failed cell stays where people find its traceback
LEVEL = 12  # of zstd


@dataclass(frozen=True)
class Ended:
    """A cell that is to be packed: its manifest, its tables by kind, and the bytes of its manifest.json."""

    manifest: Mapping[str, Any]
    tables: Mapping[str, pyarrow.Table]
    written: bytes = b""

    @property
    def packed(self) -> dict[str, Any]:
        """Its manifest as it is packed: of its files only those that stay, and the digest of what it says."""
        files = {name: facts for name, facts in self.manifest.get("files", {}).items() if name not in OF_ANY_VERSION}
        kept = {name: value for name, value in self.manifest.items() if name != "files"}
        kept |= {"files": files} if files else {}
        return kept | {"tables": list(self.tables), "digest": digest_of(self.manifest, self.tables.items())}


def pack(suite_folder: Path) -> int:
    """Move the cells that have a result into the tables of their suite; says how many.

    The new tables are written next to the old ones, and the index that names them is replaced: after a kill at any
    moment one or the other is there, whole. Cells at work stay where they are, and so do those with a checkpoint to
    resume from and those whose files are damaged. Where a table is damaged, all stay until the cells that it concerns
    lie in folders too, so that nothing more is lost; it is then dropped. The caller holds the `suite_lock`.

    Raises:
        UserError: where the index is not as it was written, the folder cannot be written to, or a table is damaged.
    """
    folder = Path(suite_folder)
    refuse_links(folder.resolve(), "")
    if (index := read_index(folder)) is None:
        return 0
    found = {id: _ended(folder_of(folder, id)) for id in dict.fromkeys(entry.cell for entry in index.entries)}
    new = {id: one for id, one in found.items() if one is not None}
    tables = PackedTables(folder, index.tables)
    if new or tables.damaged:
        tables.check(KINDS)
    gone = _concerned(tables, index)
    if kept := [id for id in gone if id in found and not (folder_of(folder, id) / MANIFEST).is_file()]:
        wrong, _, mend = next(iter(tables.damaged.values())).partition("\n")
        raise UserError(f"{wrong}\nNothing is packed while {counted(len(kept), 'cell')} must be computed again. {mend}")
    if new or tables.damaged:
        index = commit(folder, with_cells(folder, index, new, tables, gone))
    _sweep(folder, index)
    for id, one in new.items():
        _clear(folder_of(folder, id), one.written)
    return len(new)


def _ended(folder: Path) -> Ended | None:
    """A cell that lies in a folder and can be packed; None for any other, also where its files are damaged."""
    if not (folder / MANIFEST).is_file() or (folder / CHECKPOINT).is_dir():
        return None
    try:
        written = (folder / MANIFEST).read_bytes()
        manifest = read_manifest(folder)
        if manifest is None or manifest["status"] not in PACKS or (manifest.get("files") and damage(folder, manifest)):
            return None
        kinds = [kind for kind in COLUMNS if has_table(kind, folder, manifest)]
        return Ended(manifest, {kind: checked_table(kind, folder, manifest) for kind in kinds}, written)
    except (OSError, UserError):  # readers say what is wrong with it
        return None


def _concerned(tables: PackedTables, index: Index) -> list[str]:
    """The cells that have lost a table, or all they had where that of the cells is damaged."""
    if CELLS in tables.damaged:
        whole = [tables.table(kind) for kind in COLUMNS if kind in tables.files and kind not in tables.damaged]
        return list(dict.fromkeys([id for table in whole for id in spans(table)] or [e.cell for e in index.entries]))
    return [id for id in tables.ids if tables.lost(tables.manifest(id) or {})]


def with_cells(
    folder: Path, index: Index, new: Mapping[str, Ended], packed: PackedTables | None = None, gone: Collection[str] = ()
) -> Index:
    """An index whose tables have these cells too, in place of those of the same ids; the tables are written.

    Cells are in the order of the index. The caller commits what it returns.

    Args:
        folder: of the suite.
        index: as it is.
        new: the cells, by id.
        packed: the tables of the folder, where they were checked; damaged ones are dropped.
        gone: packed cells that are dropped too.
    """
    import pyarrow as pa

    packed = packed or PackedTables(folder, index.tables)
    order = {id: position for position, id in enumerate(dict.fromkeys(e.cell for e in index.entries))}
    tables = {}
    for kind in KINDS:
        there = kind in packed.files and not {kind, CELLS} & packed.damaged.keys()
        parts = [without(packed.table(kind), {*new, *gone})] if there else []
        if kind == CELLS:
            parts += [_cells(new)] if new else []
        else:
            parts += [_with_id(kind, id, one.tables[kind]) for id, one in new.items() if kind in one.tables]
        if not any(map(len, parts)):
            continue
        plain = [_plain(part) for part in parts]
        whole = _joined(plain, index) if kind == CELLS else pa.concat_tables(plain)
        if len(whole) > MOST_ROWS:  # which nobody could read
            raise UserError(f"{folder}: {len(whole):,} rows of {kind} are too many for a table; cells stay in folders.")
        tables[kind] = _written(folder, kind, _sorted(whole, order))
    return replace(index, tables=tables)


def _plain(table: pyarrow.Table) -> pyarrow.Table:
    """With texts as they are, for tables of several files have several dictionaries."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))


def _with_id(kind: str, id: str, table: pyarrow.Table) -> pyarrow.Table:
    import pyarrow as pa

    column = pa.repeat(pa.scalar(id, pa.string()), len(table))
    return table.add_column(0, CELL, column).cast(packed_schema(kind))


def _cells(new: Mapping[str, Ended]) -> pyarrow.Table:
    """A row for each cell."""
    import pyarrow as pa

    rows = [{CELL: id} | columns_of(one.packed) for id, one in new.items()]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows], _type(name)) for name in names})


def _type(column: str) -> pyarrow.DataType:
    import pyarrow as pa

    return {"seconds": pa.float64(), "seed": pa.int64()}.get(column, pa.string())


def _joined(parts: Sequence[pyarrow.Table], index: Index) -> pyarrow.Table:
    """The rows of all cells, each with its first name in the index."""
    import pyarrow as pa

    plain = [part.drop_columns([n for n in NAMES if n in part.column_names]) for part in parts]
    whole = pa.concat_tables(plain, promote_options="default")
    first: dict[str, Any] = {}
    for entry in index.entries:
        first.setdefault(entry.cell, entry)
    ids = whole[CELL].to_pylist()
    for column, name in enumerate(NAMES):
        values = [getattr(first.get(id), name, None) for id in ids]
        whole = whole.add_column(1 + column, name, pa.array(values, _type(name)))
    names = [CELL, *NAMES, *PLAIN]
    parts_of = sorted({*whole.column_names} - {*names}, key=lambda name: (name.startswith(CONFIG), name))
    return whole.select([*names, *parts_of]).replace_schema_metadata({VERSION_KEY: str(RESULT_VERSION)})


def _sorted(table: pyarrow.Table, order: Mapping[str, int]) -> pyarrow.Table:
    """By cell, in this order; those that no name has any more come last. Rows of one cell keep their order."""
    import numpy as np
    import pyarrow as pa

    column = table[CELL].combine_chunks().dictionary_encode()
    ids = column.dictionary.to_pylist()
    positions = np.array([order.get(id, len(order) + n) for n, id in enumerate(ids)])[column.indices.to_numpy()]
    return table if (np.diff(positions) >= 0).all() else table.take(pa.array(np.argsort(positions, kind="stable")))


def _written(folder: Path, kind: str, table: pyarrow.Table) -> Packed:
    """Write a table under the name of its content."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    floats = {f.name: "BYTE_STREAM_SPLIT" for f in table.schema if pa.types.is_float64(f.type) and f.name != "value"}
    others = [name for name in table.column_names if name not in floats]
    sink = pa.BufferOutputStream()
    write_table(table, sink, compression="zstd", compression_level=LEVEL, use_dictionary=others, column_encoding=floats)
    content = sink.getvalue().to_pybytes()
    sha256 = hash_of_bytes(content)
    packed = Packed(f"{kind}-{sha256[:12]}.parquet", len(content), sha256)
    write_atomically(folder / packed.file, content)
    return packed


def _sweep(folder: Path, index: Index) -> None:
    """Delete tables that no index names, and what a killed process left half written, or of packed cells."""
    named = {table.file for table in index.tables.values()}
    for name in os.listdir(folder):
        if (PACKED.fullmatch(name) and name not in named) or LEFT.fullmatch(name):
            (folder / name).unlink(missing_ok=True)
    packed = PackedTables(folder, index.tables).ids
    remove_locks(folder_of(folder, id) for id in packed)
    for name in os.listdir(folder / CELLS) if (folder / CELLS).is_dir() else ():
        if name in packed and not (folder / CELLS / name / MANIFEST).is_file():
            _clear(folder / CELLS / name)


def _clear(folder: Path, written: bytes = b"") -> None:
    """Delete the manifest and the tables of a packed cell.

    Args:
        folder: of the cell.
        written: its manifest.json when it was packed; where that is another by now, somebody computes it again.
    """
    manifest = folder / MANIFEST
    with suppress(FileNotFoundError):
        if manifest.read_bytes() != written:
            return
        manifest.unlink()  # first: a manifest without its tables would be a damaged cell
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name in OF_ANY_VERSION:
                (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # its state stays, or what it printed
        folder.rmdir()
