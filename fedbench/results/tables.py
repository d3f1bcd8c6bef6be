"""The Parquet tables of a cell: their version, and the check of what enters and leaves."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, LATER, NULLABLE

if TYPE_CHECKING:
    import pyarrow

RESULT_VERSION = 2  # of the files; raised whenever their form or meaning changes
CONVERTS = {"1": "0.2.0"}  # by result version, the last release that made the next one of it
MOST_ROWS = 20_000_000  # a thousand rounds of twenty thousand clients; a file of some bytes can claim any number
MOST_VALUES = 16 * MOST_ROWS  # of a column of lists
MOST_COUNTED = 10_000_000  # rounds or clients: readers make a row or column of each
LEAST = {"round": 1, "client": 0}  # of these columns; 0 of all integers
OF_DOMAINS = ("eval", "sizes")  # tables in which client -1 is all of a domain
VERSION_KEY = b"fedbench.result_version"


@functools.cache
def arrow_schema(kind: str) -> pyarrow.Schema:
    """The Arrow schema of one of COLUMNS. No column but those of NULLABLE may hold a null: a missing loss is NaN."""
    import pyarrow as pa

    types = {"list<int16>": pa.list_(pa.int16()), "bool": pa.bool_()}
    fields = [
        pa.field(name, types[text] if text in types else getattr(pa, text)(), nullable=name in NULLABLE.get(kind, ()))
        for name, text in COLUMNS[kind].items()
    ]
    return pa.schema(fields, metadata={VERSION_KEY: str(RESULT_VERSION)})


def to_table(kind: str, rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Rows as an Arrow table of the fixed schema.

    Raises: ValueError (a fault of the program, not of the user) for a column that is missing, unknown, null
    or does not fit its type.
    """
    import pyarrow as pa

    names = COLUMNS[kind].keys()
    for position, row in enumerate(rows):
        if row.keys() != names:
            wrong = sorted(row.keys() ^ names)
            raise ValueError(f"{kind} row {position}: missing or unknown columns {', '.join(wrong)}")
    schema = arrow_schema(kind)
    columns = []
    for field in schema:
        try:
            column = pa.array(_whole([row[field.name] for row in rows], field.type), type=field.type)
        except (pa.ArrowInvalid, TypeError, OverflowError) as error:
            raise ValueError(f"{kind} column {field.name}: not {field.type}: {error}") from error
        if column.null_count and not field.nullable:
            raise ValueError(f"{kind} column {field.name}: row {column.is_null().index(True).as_py()} holds no value")
        columns.append(column)
    return pa.table(columns, schema=schema)


def table_bytes(kind: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a Parquet file. Raises: as `to_table`."""
    return bytes_of(to_table(kind, rows))


def bytes_of(table: pyarrow.Table) -> bytes:
    """A table of one of COLUMNS as a Parquet file."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    sink = pa.BufferOutputStream()
    write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _whole(values: list[Any], kind: pyarrow.DataType) -> list[Any]:
    """The values of a column. Integers must be integers: Arrow would quietly make 1 of 1.5."""
    from pyarrow import types

    if types.is_integer(kind):
        return [None if value is None else index(value) for value in values]
    return [[index(item) for item in value] for value in values] if types.is_list(kind) else values


def read_table(kind: str, path: Path) -> pyarrow.Table:
    """The table of one cell, checked.

    Raises: UserError naming the file where it is missing, torn, foreign or of another version.
    """
    mend = "Run the suite again: only that cell is computed again."
    if not path.is_file():
        raise UserError(f"{path}: the file is missing though its cell is recorded as finished.\n{mend}")
    table = _with_later(kind, read_parquet(path, mend))
    if not table.schema.equals(arrow_schema(kind)):
        raise UserError(f"{path}: its columns are not those of a fedbench {kind} table.\n{mend}")
    if wrong := fault_of(kind, table):
        raise UserError(f"{path}: {wrong}.\n{mend}")
    return table


def read_parquet(path: Path, mend: str, columns: Sequence[str] | None = None, *, coded: bool = False) -> pyarrow.Table:
    """A Parquet file of some version of fedbench that can be read, whatever its columns.

    Arrow opens the file itself and reads it in this thread: one of its own threads that holds a Python object when the
    interpreter ends would abort the process.

    Args:
        path: of the file.
        mend: what to do where it cannot be read; the message ends with it.
        columns: those that are read; None for all.
        coded: whether texts are dictionaries.

    Raises: UserError naming the file where it is no regular file, torn, foreign, too large or of another version.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        if not path.is_file():
            raise ValueError("it is no regular file")
        texts = None
        with pa.OSFile(os.fsencode(path)) as opened:  # bytes, for a name may be no text
            with ParquetFile(opened, pre_buffer=False) as file:
                _check_size(file.metadata)
                schema = file.schema_arrow
            if coded:
                texts = [field.name for field in schema if pa.types.is_string(field.type)]
            with ParquetFile(opened, read_dictionary=texts, pre_buffer=False) as file:
                table = file.read(columns, use_threads=False)
        if coded:
            table = table.unify_dictionaries().combine_chunks()
        table.validate(full=True)  # texts that are none, and list ends that lead out, would be met far from here
    except Exception as error:  # of many kinds: what a damaged file makes pyarrow stumble over is left to chance
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: not a readable Parquet file ({reason:.200}).\n{mend}") from error
    found = (schema.metadata or {}).get(VERSION_KEY, b"none").decode(errors="replace")
    if found != str(RESULT_VERSION):
        raise UserError(wrong_version(path, found))
    return table


def _check_size(metadata: Any) -> None:
    """Raises: ValueError for more than there is memory for: repeated values take no room in a file."""
    if metadata.num_rows > MOST_ROWS:
        raise ValueError(f"{metadata.num_rows:,} rows")
    for column in range(metadata.num_columns):
        values = sum(metadata.row_group(i).column(column).num_values for i in range(metadata.num_row_groups))
        if values > MOST_VALUES:
            raise ValueError(f"{values:,} values in a column")


def fault_of(kind: str, table: pyarrow.Table) -> str:
    """What in a table of this kind, one of COLUMNS, no cell can have written; "" where there is nothing."""
    from pyarrow import compute, types

    bounds = LEAST | ({"client": -1} if kind in OF_DOMAINS else {})
    for field in table.schema:
        column = table[field.name]
        if types.is_list(field.type):
            if column.null_count or compute.list_flatten(column).null_count:
                return f"column {field.name} lacks a value"
            column = compute.list_flatten(column)
        elif column.null_count and not field.nullable:
            return f"column {field.name} lacks a value"
        if types.is_integer(column.type) and len(column):
            least, most = compute.min_max(column).as_py().values()
            limit = MOST_COUNTED if field.name in bounds else most
            if least is not None and (least < bounds.get(field.name, 0) or most > limit):
                return f"column {field.name} goes from {least} to {most}"
    return ""


def _with_later(kind: str, table: pyarrow.Table) -> pyarrow.Table:
    """A table of an older fedbench with the columns that came later; any other as it is."""
    import pyarrow as pa

    schema = arrow_schema(kind)
    missing = {name: same for name, same in LATER.get(kind, {}).items() if name not in table.schema.names}
    if not missing or table.schema.names != [name for name in schema.names if name not in missing]:
        return table
    for position, field in enumerate(schema):
        if field.name in missing:
            same = missing[field.name]
            column = pa.nulls(len(table), field.type) if same is None else table[same]
            table = table.add_column(position, field, column)
    return table


def without_defaults(kind: str, table: pyarrow.Table) -> pyarrow.Table:
    """A table without those of its LATER columns that say what is read where they are missing."""
    silent = [
        name
        for name, same in LATER.get(kind, {}).items()
        if (table[name].null_count == len(table) if same is None else table[name].equals(table[same]))
    ]
    return table.drop_columns(silent)


def write_rows(folder: Path, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows of one table of a cell, replacing the file. Raises: ValueError for a wrong row."""
    write_atomically(Path(folder) / f"{kind}.parquet", table_bytes(kind, rows))


def wrong_version(path: Path, found: object) -> str:
    """The message for a file that another fedbench wrote."""
    if release := CONVERTS.get(str(found)):
        return (
            f"{path}: result version {found}, which fedbench {release} is the last to read: "
            f"`python results/migrate.py FOLDER` of that release converts the suite's folder."
        )
    return (
        f"{path}: result version {found}, but this fedbench reads version {RESULT_VERSION}.\n"
        "Read it with the fedbench that wrote it, or run the suite again into another folder (--results DIR)."
    )
