"""In what two results of one name differ: the parts of a cell that do not say the same."""

from __future__ import annotations

from fedbench.results.columns import COLUMNS, ONLY_WITH_ROWS, UNHASHED
from fedbench.results.content import digest_of_table, manifest_content
from fedbench.results.result import Result, checked_table, has_table


def differing(one: Result, other: Result) -> tuple[str, ...]:
    """The tables, of two finished cells, that say something else, timings aside; of one id also `manifest`.

    A table that came when results were kept already says nothing where one of them is without it. Raises: UserError
    where one is not as it was written.
    """
    apart = [kind for kind in COLUMNS if _apart(kind, one, other)]
    same = one.manifest.get("id") == other.manifest.get("id")
    if same and manifest_content(one.manifest) != manifest_content(other.manifest):
        apart.insert(0, "manifest")
    return tuple(apart)


def _apart(kind: str, one: Result, other: Result) -> bool:
    there = [has_table(kind, result.folder, result.manifest) for result in (one, other)]
    if not any(there) or (kind in UNHASHED and not all(there)):
        return False
    if not all(there):
        whole = one if there[0] else other
        return kind not in ONLY_WITH_ROWS or checked_table(kind, whole.folder, whole.manifest).num_rows > 0
    tables = (checked_table(kind, result.folder, result.manifest) for result in (one, other))
    return len({digest_of_table(kind, table, one.manifest.get("ignored", ())) for table in tables}) > 1
