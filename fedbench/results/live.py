"""Runs at work in a results folder, by the hidden files that they keep: read without a lock, believed in nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.index import INDEX
from fedbench.results.processes import is_gone
from fedbench.results.untrusted import check_all

SUFFIX = ".progress"
MOST_BYTES = 2**22
RUN_TYPES: dict[str, Any] = {
    **dict.fromkeys(("kept", "rounds", "done", "cells"), int),
    **dict.fromkeys(("rate", "left"), int | float | None),
    "suite": str, "ended": dict, "at": list, "process": dict,
}  # fmt: skip
CELL_TYPES: dict[str, Any] = {
    **dict.fromkeys(("rounds", "round"), int),
    **dict.fromkeys(("score", "rate", "left"), int | float | None),
    **dict.fromkeys(("title", "metric"), str),
}  # fmt: skip


@dataclass(frozen=True)
class Live:
    """A run as it wrote of itself: told, what `runs.pace` writes down · silent: seconds since it did, by its file ·
    gone: whether its process has ended here without a word."""

    folder: Path
    told: dict[str, Any]
    silent: float
    gone: bool


def suites_in(paths: Iterable[str | Path]) -> list[Path]:
    """The folders of suites that are, or lie in, these. Raises: UserError where one is no folder."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise UserError(f"{path}: no such folder. Wanted: a results folder, or a suite's folder in it.")
        found += [path] if (path / INDEX).is_file() else sorted(p.parent for p in path.glob(f"*/{INDEX}"))
    return found


def runs_in(folders: Iterable[Path]) -> list[Live]:
    """Those at work in these suites' folders. A file that is torn, foreign or just gone is passed over."""
    found = []
    for folder in folders:
        for file in sorted(folder.glob(f".*{SUFFIX}")):
            try:
                with open(file, "rb") as opened:
                    told = json.loads(opened.read(MOST_BYTES))
                silent = max(0.0, time.time() - file.stat().st_mtime)
                _check(told)
            except (OSError, ValueError, RecursionError, TypeError, KeyError):
                continue
            found.append(Live(folder, told, silent, is_gone(told["process"])))
    return found


def _check(told: Any) -> None:
    """Raises: TypeError, KeyError for what `runs.pace` did not write."""
    if not isinstance(told, dict) or not told.keys() >= RUN_TYPES.keys():
        raise TypeError("no run")
    check_all(told, RUN_TYPES)
    for status, n in told["ended"].items():
        if type(n) is not int or n < 0:
            raise TypeError(f"{status} is {n!r:.80}")
    for cell in told["at"]:
        if not isinstance(cell, dict) or not cell.keys() >= CELL_TYPES.keys():
            raise TypeError("no cell")
        check_all(cell, CELL_TYPES)
    if min(told["rounds"], told["done"]) < 0:
        raise TypeError("no count")
