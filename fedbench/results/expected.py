"""A paper's numbers in a suite's index, to be compared with its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.index import INDEX, MEND, Index, change_index, read_index
from fedbench.results.schema_checks import typed
from fedbench.results.store import store_of


@dataclass(frozen=True)
class Expected:
    """One number of a paper. metric: a domain, or "average" · value_percent and std: as printed, in percent.

    variant: the sweep point, without what overlay and command line add to it · rounds: after how many, None where the
    suite does not say.
    """

    scenario: str
    variant: str
    dataset: str
    backbone: str
    method: str
    metric: str
    value_percent: float
    std: float | None = None
    rounds: int | None = None
    source: str = ""


def write_expected(suite_folder: Path, suite: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """All numbers of a suite, in place of those that were there."""
    found = [dict(row) for row in rows]
    old = read_index(suite_folder)
    if found != list(old.expected if old else ()):
        change_index(suite_folder, suite, lambda index: replace(index, expected=found))


def read_expected(suite_folder: Path) -> list[Expected]:
    """What `write_expected` wrote. Raises: UserError where it cannot be used."""
    index = store_of(suite_folder).index
    return expected_of(index, Path(suite_folder)) if index else []


def expected_of(index: Index, folder: Path) -> list[Expected]:
    """The numbers of an index that was read from this folder. Raises: UserError where one is none of fedbench."""
    try:
        return [typed(Expected, row) for row in index.expected]
    except TypeError as error:
        raise UserError(f"{folder / INDEX}: an expected number is not one of fedbench ({error}).\n{MEND}") from error
