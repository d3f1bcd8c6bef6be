"""Where a suite's cells lie: in packed tables, or in folders of their own while they are at work."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import hash_of_file
from fedbench.errors import UserError
from fedbench.results.documents import CONFIG, REQUIRED, check_parts, parsed
from fedbench.results.index import CELLS, INDEX, Index, Packed, read_index
from fedbench.results.tables import RESULT_VERSION, arrow_schema, fault_of, read_parquet

if TYPE_CHECKING:
    import pyarrow

MEND_TABLE = "Run the suite again, which computes what is lost and keeps the rest, or restore the file from a copy."
ID = re.compile(r"[0-9a-f]{12}")
CELL = "cell"  # the column of every packed table that has the cell's id
NAMES = ("scenario", "method", "variant", "seed")  # of the cell's first name; for people who open the file
PLAIN = ("status", "reason", "started", "seconds", "digest")  # parts of a manifest that are columns as they are
MANIFEST_PART = "manifest."  # the columns of a manifest's parts that are called as one of a name


def suite_folder_of(cell_folder: Path) -> Path:
    """The suite's folder that a cell's folder `cells/<id>` lies in; of one that was copied, the folder it lies in."""
    parent = Path(cell_folder).absolute().parent
    return parent.parent if parent.name == CELLS else parent


def folder_of(suite_folder: Path, id: str) -> Path:
    """Where a cell lies while it is at work, and what is not packed of it after that."""
    return Path(suite_folder) / CELLS / id


@functools.lru_cache(maxsize=64)
def _packed_tables_at(folder: str, *stamp: int) -> PackedTables:
    index = read_index(Path(folder))
    return PackedTables(Path(folder), index.tables if index else {}, index)


def packed_tables(suite_folder: Path) -> PackedTables:
    """The packed tables of a suite's folder, as its index is now. Raises: UserError where that cannot be read."""
    folder = os.path.abspath(suite_folder)
    stamp = stamp_of(suite_folder)
    return _packed_tables_at(folder, *stamp) if stamp else PackedTables(Path(folder), {})


def stamp_of(suite_folder: Path) -> tuple[int, ...]:
    """What changes with every new index of a suite; () where there is none."""
    try:
        found = os.stat(os.path.join(suite_folder, INDEX))
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


class PackedTables:
    """The packed tables of one suite: read when they are asked for, and believed once they were checked.

    What is wrong with a table concerns the cells that it has rows of, and is in `damaged`; everything else is read.

    Attributes:
        folder: of the suite.
        files: of the tables, by kind.
        index: of the suite; None where there is none.
    """

    def __init__(self, folder: Path, files: Mapping[str, Packed], index: Index | None = None) -> None:
        self.folder, self.files, self.index = folder, files, index
        self._sound: set[str] = set()
        self._tables: dict[str, pyarrow.Table] = {}
        self._spans: dict[str, dict[str, tuple[int, int]]] = {}

    @cached_property
    def damaged(self) -> dict[str, str]:
        """Why a table cannot be used, by kind: its file is not the one that the index names, or holds what no fedbench
        writes. The latter is found of the table `cells` at once, and of others when they are read or by `check`."""
        found = {}
        for kind in self.files:
            try:
                self._verify(kind)
                if kind == CELLS and CELLS not in self._tables:
                    table = self._sound_table(CELLS)
                    self._parts = self._parsed(table)
                    self._tables[CELLS] = table
            except UserError as error:
                found[kind] = str(error)
        return found

    def verify(self) -> None:
        """Compare every file with its hash again."""
        for name in ("damaged", "ids"):
            vars(self).pop(name, None)

    def check(self, kinds: Iterable[str]) -> None:
        """Read these tables; what is wrong with them is in `damaged`."""
        for kind in kinds:
            if kind in self.files and kind not in self._sound:
                with suppress(UserError):
                    self.read(kind)

    def lost(self, manifest: Mapping[str, Any]) -> dict[str, str]:
        """Of a packed cell, the kinds of its tables that cannot be used, and why."""
        return {kind: wrong for kind, wrong in self.damaged.items() if kind in manifest.get("tables", ())}

    def _verify(self, kind: str) -> None:
        """Raises: UserError where the file of a table is not the one that the index names."""
        known = self.files[kind]
        path = self.folder / known.file
        try:
            if not path.is_file():
                what = "no regular file" if os.path.lexists(path) else "missing"
                raise UserError(f"{path}: {what}, though {INDEX} names it.\n{MEND_TABLE}")
            if path.stat().st_size != known.size or hash_of_file(path) != known.sha256:
                raise UserError(f"{path}: checksum mismatch: it was changed since it was written.\n{MEND_TABLE}")
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}).") from error

    def table(self, kind: str) -> pyarrow.Table:
        """All packed rows of one kind, with the column `cell`; texts are dictionaries. Raises: UserError."""
        if kind not in self._tables or kind in self.damaged:
            self._tables[kind] = self.read(kind)
        return self._tables[kind]

    def read(self, kind: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """As `table`, some columns and `cell`; the table is not kept. Raises: UserError."""
        if kind in self.damaged:
            raise UserError(self.damaged[kind])
        try:
            return self._sound_table(kind, columns)
        except UserError as error:
            self.damaged[kind] = str(error)
            raise

    def _sound_table(self, kind: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """A table, all of which is checked when it is read for the first time. Raises: UserError."""
        names = None if columns is None else [CELL, *columns]
        path = self.folder / self.files[kind].file
        if kind in self._sound:
            return read_parquet(path, MEND_TABLE, names, coded=True)
        table = read_parquet(path, MEND_TABLE, coded=True)
        if wrong := _fault_of_packed(kind, table):
            raise UserError(f"{path}: {wrong}.\n{MEND_TABLE}")
        self._sound.add(kind)
        return table if names is None else table.select(names)

    def rows(self, kind: str, id: str) -> pyarrow.Table | None:
        """The rows of one cell, without the column `cell`; None where it has no such table. Raises: UserError."""
        if kind not in self.files:
            return None
        if kind not in self._spans:
            self._spans[kind] = spans(self.table(kind))
        if (position := self._spans[kind].get(id)) is None:
            return None
        own = self.table(kind).slice(position[0], position[1] - position[0]).drop_columns([CELL])
        return own.cast(arrow_schema(kind))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The row of each packed cell; none where the table of cells cannot be used."""
        if CELLS not in self.files or CELLS in self.damaged:
            return {}
        return {id: row for row, id in enumerate(self._tables[CELLS][CELL].to_pylist())}

    def _parsed(self, table: pyarrow.Table) -> list[tuple[str, str, Sequence[int | None], list[Any]]]:
        """The columns of `cells`: section of a manifest ("config." or ""), name in it, places and values.

        A value that many cells have is parsed and checked once.

        Raises: UserError where a part is none of a manifest.
        """
        found: list[tuple[str, str, Sequence[int | None], list[Any]]] = []
        needed = {*REQUIRED}
        try:
            for name in table.column_names:
                if name in (CELL, *NAMES):
                    continue
                column = table[name].combine_chunks()
                if name in PLAIN:
                    positions, values = range(len(column)), column.to_pylist()
                    known = list(dict.fromkeys(value for value in values if value is not None))
                else:
                    positions = column.indices.to_pylist()
                    values = known = [parsed(text) for text in column.dictionary.to_pylist()]
                section = CONFIG if name.startswith(CONFIG) else ""
                found.append((section, name.removeprefix(section).removeprefix(MANIFEST_PART), positions, values))
                check_parts(name.removeprefix(MANIFEST_PART), known)
                needed -= set() if column.null_count else {name}
            if needed:
                raise TypeError(f"{min(needed)} is missing")
        except (TypeError, AttributeError, ValueError, RecursionError) as error:
            path = self.folder / self.files[CELLS].file
            raise UserError(f"{path}: a cell has no manifest of fedbench ({error}).\n{MEND_TABLE}") from error
        return found

    def manifest(self, id: str) -> dict[str, Any] | None:
        """The manifest of a packed cell, with the `digest` of its content; None where there is none, or where the table
        of cells cannot be used."""
        if (row := self.ids.get(id)) is None:
            return None
        found: dict[str, Any] = {"result_version": RESULT_VERSION, "id": id, "config": {}}
        for section, name, positions, values in self._parts:
            if (position := positions[row]) is None:
                continue
            if section:
                found["config"][name] = values[position]
            elif (value := values[position]) is not None or name not in PLAIN or name == "reason":
                found[name] = value
        return found


def spans(table: pyarrow.Table) -> dict[str, tuple[int, int]]:
    """Of a table with the column `cell`: the first row of each cell, and the one after its last."""
    import numpy as np

    if not len(table):
        return {}
    column = table[CELL].combine_chunks()
    codes, ids = column.indices.to_numpy(), column.dictionary.to_pylist()
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = [*starts[1:].tolist(), len(codes)][: len(starts)]
    found = [ids[code] for code in codes[starts].tolist()]
    return dict(zip(found, zip(starts.tolist(), ends, strict=True), strict=True))


def without(table: pyarrow.Table, ids: Iterable[str]) -> pyarrow.Table:
    """A table with the column `cell` without the rows of these cells."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return table.filter(pc.invert(pc.is_in(table[CELL].cast(pa.string()), pa.array(list(ids), pa.string()))))


def packed_schema(kind: str) -> pyarrow.Schema:
    """Of a packed table: that of a cell's table, after the column `cell`."""
    import pyarrow as pa

    own = arrow_schema(kind)
    return pa.schema([pa.field(CELL, pa.string(), nullable=False), *own], metadata=own.metadata)


def _fault_of_packed(kind: str, table: pyarrow.Table) -> str:
    """What is wrong with a packed table, in words; "" where nothing is."""
    import pyarrow as pa

    coded = pa.types.is_dictionary
    plain = pa.schema([f.with_type(f.type.value_type) if coded(f.type) else f for f in table.schema])
    if kind == CELLS:
        types = {"seconds": pa.float64(), "seed": pa.int64()}
        fits = {CELL, *PLAIN} <= {*plain.names} and len({*plain.names}) == len(plain)
        fits = fits and all(field.type == types.get(field.name, pa.string()) for field in plain)
    else:
        fits = plain.equals(packed_schema(kind))
    if not fits:
        return f"its columns are not those of a packed {kind} table"
    ids = table[CELL].combine_chunks()
    if ids.null_count or any(not ID.fullmatch(id) for id in ids.dictionary.to_pylist()):
        return "it has rows of what is no cell"
    codes = ids.indices.to_numpy()
    if int((codes[1:] != codes[:-1]).sum()) >= max(1, len(ids.dictionary)):
        return "the rows of a cell do not follow on each other"
    if kind == CELLS:
        return "it has a cell twice" if len(ids.dictionary) != len(table) else ""
    return fault_of(kind, table.drop_columns([CELL]))


def columns_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the table `cells` has of a manifest, by column."""

    def text(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    skipped = ("id", "config", "result_version", *PLAIN)
    parts = {
        MANIFEST_PART + name if name in (CELL, *NAMES) else name: text(value)
        for name, value in manifest.items()
        if name not in skipped
    }
    parts |= {CONFIG + name: text(value) for name, value in manifest["config"].items()}
    return {name: manifest.get(name) for name in PLAIN} | parts
