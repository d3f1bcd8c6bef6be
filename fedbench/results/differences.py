"""In what two results of one name differ: the parts of a cell that do not say the same."""

from __future__ import annotations

from pathlib import Path

from fedbench.disk import hash_of_bytes, hash_of_json
from fedbench.results.columns import COLUMNS, ONLY_WITH_ROWS, TIMINGS, UNHASHED
from fedbench.results.result import Result, checked_table, has_table
from fedbench.results.tables import what_is_said


def differing(one: Result, other: Result) -> tuple[str, ...]:
    """The tables, of two finished cells, that say something else, timings aside; of one id also `manifest`.

    A table that came when results were kept already says nothing where one of them is without it. Raises: UserError
    where one is not as it was written.
    """
    apart = [kind for kind in COLUMNS if _apart(kind, one, other)]
    if one.manifest.get("id") == other.manifest.get("id") and _told(one) != _told(other):
        apart.insert(0, "manifest")
    return tuple(apart)


def _told(result: Result) -> dict:
    return {name: value for name, value in result.manifest.items() if name not in TIMINGS["manifest"]}


def _apart(kind: str, one: Result, other: Result) -> bool:
    there = [has_table(kind, result.folder, result.manifest) for result in (one, other)]
    if not any(there) or (kind in UNHASHED and not all(there)):
        return False
    if not all(there):
        whole = one if there[0] else other
        return kind not in ONLY_WITH_ROWS or checked_table(kind, whole.folder, whole.manifest).num_rows > 0
    if all(_file(kind, result).is_file() for result in (one, other)) and _same_bytes(kind, one, other):
        return False
    tables = [checked_table(kind, result.folder, result.manifest) for result in (one, other)]
    plain = [table.drop_columns(list(TIMINGS[kind])).replace_schema_metadata(None) for table in tables]
    # Arrow's own comparison is quick, but no NaN equals another.
    return not plain[0].equals(plain[1]) and len({hash_of_json(what_is_said(kind, table)) for table in tables}) > 1


def _same_bytes(kind: str, one: Result, other: Result) -> bool:
    """Whether both tables are the same file, and the one that both manifests speak of: two may be torn alike."""
    first, second = (_file(kind, result).read_bytes() for result in (one, other))
    if first != second:
        return False
    described = [result.manifest.get("files") for result in (one, other)]
    said = {files.get(_file(kind, one).name, {}).get("sha256") for files in described if files}
    return said <= {hash_of_bytes(first)}


def _file(kind: str, result: Result) -> Path:
    return result.folder / f"{kind}.parquet"
