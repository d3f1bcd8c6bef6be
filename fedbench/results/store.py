"""Where a suite's cells lie: in packed tables, or in folders of their own while they are at work."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedbench.disk import hash_of_file
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS
from fedbench.results.documents import parsed
from fedbench.results.identity import id_in
from fedbench.results.index import CELLS, INDEX, MEND, Index, Packed, read_index
from fedbench.results.schema_checks import CONFIG, check_parts
from fedbench.results.tables import READABLE, RESULT_VERSION, VERSION_KEY, arrow_schema, numbers, wrong_version

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

TRIES = 5  # to read a folder that a run is packing
CELL = "cell"  # the column of every packed table that has the cell's id
NAMES = ("scenario", "method", "variant", "seed")  # of the cell's first name; for people who open the file
PLAIN = ("status", "reason", "started", "seconds", "digest")  # parts of a manifest that are columns as they are
MANIFEST_PART = "manifest."  # the columns of a manifest's parts that are called as one of a name


def suite_folder_of(cell_folder: Path) -> Path:
    """The suite's folder that a cell's folder lies in; cells of version 1 lay in it directly."""
    parent = Path(cell_folder).absolute().parent
    return parent.parent if parent.name == CELLS else parent


def cell_folders(suite_folder: Path) -> Callable[[str], Path]:
    """Where each cell lies, or will lie, by its id: `cells/<id>`, or `<slug>-<id>` of version 1 where that is there."""
    folder, cells, older = Path(suite_folder), Path(suite_folder) / CELLS, dict[str, str]()
    with suppress(OSError):  # there is no such folder yet
        older = {id_in(name): name for name in sorted(os.listdir(folder)) if "-" in name and name[0] != "."}
        older = {id: name for id, name in older.items() if os.path.isdir(folder / name)}
    return lambda id: folder / older[id] if id in older else cells / id


@functools.lru_cache(maxsize=64)
def _store_at(folder: str, *stamp: int) -> Store:
    index = read_index(Path(folder))
    return Store(Path(folder), index.tables if index else {}, index)


def store_of(suite_folder: Path) -> Store:
    """The packed tables of a suite's folder, as its index is now. Raises: UserError where that cannot be read."""
    folder = os.path.abspath(suite_folder)
    stamp = stamp_of(suite_folder)
    return _store_at(folder, *stamp) if stamp else Store(Path(folder), {})


def stamp_of(suite_folder: Path) -> tuple[int, ...]:
    """What changes with every new index of a suite; () where there is none."""
    try:
        found = os.stat(os.path.join(suite_folder, INDEX))
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def settled(folder: Path, read: Callable[[], T]) -> T:
    """What is read of a suite's folder, read again where a run packed cells meanwhile. Raises: UserError as `read`."""
    for _ in range(TRIES):
        before = stamp_of(folder)
        try:
            return read()
        except UserError:
            if stamp_of(folder) == before:
                raise
    return read()


class Store:
    """The packed tables of one suite: read when they are asked for, and checked against the hashes of its index.

    Attributes:
        folder: of the suite.
        files: of the tables, by kind.
        index: of the suite; None where there is none.
    """

    def __init__(self, folder: Path, files: Mapping[str, Packed], index: Index | None = None) -> None:
        self.folder, self.files, self.index = folder, files, index
        self._whole: set[str] = set()
        self._tables: dict[str, pyarrow.Table] = {}
        self._spans: dict[str, dict[str, tuple[int, int]]] = {}

    def verify(self) -> None:
        """Compare every file with its hash. Raises: UserError naming one that does not fit."""
        self._whole.clear()
        for kind in self.files:
            self._path(kind)

    def _path(self, kind: str) -> Path:
        """The file of a table, checked once. Raises: UserError."""
        known = self.files[kind]
        path = self.folder / known.file
        if kind in self._whole:
            return path
        try:
            whole = path.stat().st_size == known.size and hash_of_file(path) == known.sha256
        except FileNotFoundError:
            raise UserError(f"{path}: missing, though {INDEX} names it.\n{MEND}") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
        if not whole:
            raise UserError(f"{path}: checksum mismatch: it was changed since it was written.\n{MEND}")
        self._whole.add(kind)
        return path

    def table(self, kind: str) -> pyarrow.Table:
        """All packed rows of one kind, with the column `cell`; texts are dictionaries. Raises: UserError."""
        if kind not in self._tables:
            self._tables[kind] = self.read(kind)
        return self._tables[kind]

    def read(self, kind: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """As `table`, some columns and `cell`; the table is not kept. Raises: UserError."""
        return _read(kind, self._path(kind), None if columns is None else [CELL, *columns])

    def rows(self, kind: str, id: str) -> pyarrow.Table | None:
        """The rows of one cell, without the column `cell`; None where it has no such table. Raises: UserError."""
        if kind not in self.files:
            return None
        if kind not in self._spans:
            self._spans[kind] = spans(self.table(kind))
        if (place := self._spans[kind].get(id)) is None:
            return None
        own = self.table(kind).slice(place[0], place[1] - place[0]).drop_columns([CELL])
        return own.cast(arrow_schema(kind))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The row of each packed cell."""
        if CELLS not in self.files:
            return {}
        return {id: row for row, id in enumerate(self.table(CELLS)[CELL].to_pylist())}

    @cached_property
    def _parts(self) -> list[tuple[str, str, Sequence[int | None], list[Any]]]:
        """The columns of `cells`: section of a manifest ("config." or ""), name in it, places and values.

        A value that many cells have is parsed and checked once.

        Raises: UserError where a part is none of a manifest.
        """
        found: list[tuple[str, str, Sequence[int | None], list[Any]]] = []
        for name in self.table(CELLS).column_names:
            if name in (CELL, *NAMES):
                continue
            column = self.table(CELLS)[name].combine_chunks()
            if name in PLAIN:
                places, values = range(len(column)), column.to_pylist()
                known = list(dict.fromkeys(value for value in values if value is not None))
            else:
                places = column.indices.to_pylist()
                values = known = [parsed(text) for text in column.dictionary.to_pylist()]
            section = CONFIG if name.startswith(CONFIG) else ""
            found.append((section, name.removeprefix(section).removeprefix(MANIFEST_PART), places, values))
            try:
                check_parts(name.removeprefix(MANIFEST_PART), known)
            except (TypeError, AttributeError) as error:
                raise UserError(
                    f"{self._path(CELLS)}: a cell has no manifest of fedbench ({error}).\n{MEND}"
                ) from error
        return found

    def manifest(self, id: str) -> dict[str, Any] | None:
        """The manifest of a packed cell, with the `digest` of its content; None where there is none.

        Raises: UserError where it is none of fedbench.
        """
        if (row := self.ids.get(id)) is None:
            return None
        found: dict[str, Any] = {"result_version": RESULT_VERSION, "id": id, "config": {}}
        for section, name, places, values in self._parts:
            if (place := places[row]) is None:
                continue
            if section:
                found["config"][name] = values[place]
            elif (value := values[place]) is not None or name not in PLAIN or name == "reason":
                found[name] = value
        if "status" not in found:
            raise UserError(f"{self._path(CELLS)}: the cell {id} has no status.\n{MEND}")
        return found


def spans(table: pyarrow.Table) -> dict[str, tuple[int, int]]:
    """Of a table with the column `cell`: the first row of each cell, and the one after its last."""
    import numpy as np

    if not len(table):
        return {}
    column = table[CELL].combine_chunks()
    codes, ids = numbers(column.indices), column.dictionary.to_pylist()
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = [*starts[1:].tolist(), len(codes)][: len(starts)]
    found = [ids[code] for code in codes[starts].tolist()]
    return dict(zip(found, zip(starts.tolist(), ends, strict=True), strict=True))


def packed_schema(kind: str) -> pyarrow.Schema:
    """Of a packed table: that of a cell's table, after the column `cell`."""
    import pyarrow as pa

    own = arrow_schema(kind)
    return pa.schema([pa.field(CELL, pa.string(), nullable=False), *own], metadata=own.metadata)


def _read(kind: str, path: Path, columns: Sequence[str] | None) -> pyarrow.Table:
    """A packed table whose file is as it was written. Raises: UserError where it is none of fedbench."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with open(path, "rb") as opened, ParquetFile(opened) as file:
            schema = file.schema_arrow
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        with open(path, "rb") as opened, ParquetFile(opened, read_dictionary=texts) as file:
            table = file.read(columns).unify_dictionaries().combine_chunks()
        table.validate(full=True)
    except Exception as error:  # of many kinds: what somebody else's file makes pyarrow stumble over
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: not a readable Parquet file ({reason}).\n{MEND}") from error
    version = (schema.metadata or {}).get(VERSION_KEY, b"none").decode(errors="replace")
    if version not in map(str, READABLE):
        raise UserError(wrong_version(path, version))
    if kind in COLUMNS and not schema.equals(packed_schema(kind)):
        raise UserError(f"{path}: its columns are not those of a packed {kind} table.\n{MEND}")
    return table


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
