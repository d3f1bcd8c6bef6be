"""expected.json: a paper's numbers beside the results that are to be compared with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.documents import read_sealed, write_json
from fedbench.results.untrusted import typed

EXPECTED = "expected.json"


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
    """All numbers of a suite, in place of those that were there; no file where it has none."""
    path, found = Path(suite_folder) / EXPECTED, list(rows)
    if found:
        write_json(path, {"suite": suite, "expected": found})
    else:
        path.unlink(missing_ok=True)


def read_expected(suite_folder: Path) -> list[Expected]:
    """What `write_expected` wrote; empty where there is no file. Raises: UserError where it cannot be used."""
    path = Path(suite_folder) / EXPECTED
    if not path.is_file():
        return []
    mend = "Delete it and run the suite again: finished cells are kept."
    rows = read_sealed(path, ("suite", "expected"), ("result_version", "suite", "expected"), mend)["expected"]
    try:
        return [typed(Expected, row) for row in rows]
    except TypeError as error:
        raise UserError(f"{path}: a number is not one of fedbench ({error}).\n{mend}") from error
