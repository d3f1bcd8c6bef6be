"""Tables: the rows of CSV, TSV, JSONL and Parquet files, each with its file and line."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbench.data.image_files import UnreadableFile, content
from fedbench.data.names import is_passed_over
from fedbench.errors import UserError
from fedbench.words import counted, is_text, suggestion

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
SHEETS = (".xlsx", ".xls", ".ods")  # of programs that can save a table as CSV
LONGEST_CELL = 2**31 - 1
QUOTES = "a text with a comma stands in double quotes"


class Row(NamedTuple):
    """One row of a table: where it stands, as messages call it, and its cells by their columns."""

    place: str
    cells: Mapping[str, Any]


def tables_at(root: Path) -> list[Path]:
    """The file itself, or the tables in a folder, sorted. Raises: UserError where there are none."""
    if not root.exists():
        raise UserError(f"{root} does not exist")
    there = [file for file in root.iterdir() if not is_passed_over(file.name)] if root.is_dir() else [root]
    files = sorted(file for file in there if root == file or _format(file) in FORMATS)
    if not files:
        raise UserError(f"{root} holds no table: no file that ends in {', '.join(FORMATS)}")
    if _format(files[0]) not in FORMATS:
        instead = (
            "save it as CSV, in UTF-8" if _format(root) in SHEETS else f"its name must end in {', '.join(FORMATS)}"
        )
        raise UserError(f"{root} is no table that is read: {instead}")
    return files


def _format(file: Path) -> str:
    return file.suffix.lower()


def columns_of(file: Path) -> list[str]:
    """The columns of a table: of its schema, its first line or its first object. Raises: UserError as `rows_of`."""
    if _format(file) == ".parquet":
        return list(_parquet_file(file).schema_arrow.names)
    return list(next(rows_of(file, [])).cells)


def rows_of(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a table, each with these columns at least.

    Raises: UserError with file and line (row, of a Parquet file) where the file cannot be read, is empty, lacks a
    column, is not UTF-8, or holds a NUL byte.
    """
    empty = True
    for row in _parquet(file, columns) if _format(file) == ".parquet" else _lines(file, columns):
        empty = False
        yield row
    if empty:
        raise UserError(f"{file} holds no rows")


def cell(row: Row, column: str) -> str:
    """A cell as text; whole numbers and truth values are written out. Raises: UserError with its place."""
    value = row.cells[column]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int):
        raise UserError(f"{row.place}: column {column!r} must hold text, not {json.dumps(value, default=str)[:60]}")
    if "\0" in (found := str(value)):
        raise UserError(f"{row.place}: column {column!r} holds a NUL byte; is the file a table of texts?")
    if not is_text(found):
        raise UserError(f"{row.place}: column {column!r} holds half a character (a lone surrogate such as \\ud83d)")
    return found


def _bytes(file: Path) -> bytes:
    try:
        return content(file.parent, file.name)
    except UnreadableFile as error:
        raise UserError(f"cannot read {file}: {error.why}") from error


def _lines(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Of a CSV, TSV or JSONL file."""
    raw = _bytes(file)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{file} is UTF-16; save it as UTF-8 (iconv -f utf-16 -t utf-8)")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        wrong = f"byte {raw[error.start]:#04x} is not UTF-8"
        raise UserError(f"{file}:{line}: {wrong}; save the file as UTF-8 (iconv -f latin1 -t utf-8)") from error
    if (at := text.find("\0")) >= 0:
        raise UserError(f"{file}:{text.count(chr(10), 0, at) + 1}: holds a NUL byte; is it a table of texts?")
    if not text.strip():
        raise UserError(f"{file} is empty")
    yield from (_json_lines if _format(file) == ".jsonl" else _separated)(file, text, columns)


def _json_lines(file: Path, text: str, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            cells = json.loads(line, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: no JSON: {error}") from error
        if not isinstance(cells, dict):
            raise UserError(f'{place}: a line must be one object, such as {{"text": "...", "label": "..."}}')
        _has(place, columns, cells)
        yield Row(place, cells)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises: ValueError for a key that stands in it twice, of which `json` takes the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} stands in one object twice")
    return found


def _separated(file: Path, text: str, columns: Sequence[str]) -> Iterator[Row]:
    """A TSV has no quotes, as those of GLUE. Raises: UserError for a header in quotes, or with other separators."""
    csv.field_size_limit(LONGEST_CELL)
    tabs = _format(file) == ".tsv"
    how: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
    reader = csv.reader(io.StringIO(text, newline=""), **how)
    header: list[str] | None = None
    start = 1
    try:
        for fields in reader:
            place, start = f"{file}:{start}", reader.line_num + 1
            if not fields:
                continue
            if header is None:
                header = fields
                _check_header(place, header, tabs)
                _has(place, columns, header)
            elif len(fields) != len(header):
                quoted = "a TSV has no quotes, and every tab ends a field" if tabs else QUOTES
                raise UserError(
                    f"{place}: {counted(len(fields), 'field')}, and the first line has {len(header)}; {quoted}"
                )
            else:
                yield Row(place, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise UserError(f"{file}:{start}: {error}") from error


def _check_header(place: str, header: Sequence[str], tabs: bool) -> None:
    if tabs and any(is_quoted(column) for column in header):
        raise UserError(f"{place}: a column is called {header[0]}: a TSV has no quotes; save the table as CSV")
    other = next((sign for sign in (";", "\t", "|") if sign in header[0]), None)
    if not tabs and len(header) == 1 and other:
        sign = "tabs; call the file .tsv" if other == "\t" else f"{other!r}; save it with commas"
        raise UserError(f"{place}: its columns are separated by {sign}")


def is_quoted(value: str) -> bool:
    """Whether it stands in double quotes."""
    return len(value) > 1 and value[0] == value[-1] == '"'


def _parquet(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow

    table = _parquet_file(file)
    names = table.schema_arrow.names
    _has(str(file), columns, names)
    try:
        wanted = [name for name in names if name in columns]
        batches = [batch.to_pylist() for batch in table.iter_batches(columns=wanted, use_threads=False)]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error
    number = 0
    for batch in batches:
        for cells in batch:
            number += 1
            yield Row(f"{file}: row {number}", cells)


def _parquet_file(file: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:  # in this thread: one of Arrow's that has these bytes when the interpreter ends would abort the process
        return pyarrow.parquet.ParquetFile(pyarrow.BufferReader(_bytes(file)), pre_buffer=False)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> UserError:
    return UserError(f"cannot read {file}: {str(error).partition(chr(10))[0]}")


def _has(place: str, columns: Sequence[str], there: Iterable[str]) -> None:
    there = list(there)
    for column in columns:
        if there.count(column) > 1:
            raise UserError(f"{place}: the column {column!r} stands there {there.count(column)} times")
        if column not in there:
            raise UserError(f"{place}: no column {column!r}{suggestion(column, there, 'it has')}")
