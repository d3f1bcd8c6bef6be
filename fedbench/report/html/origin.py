"""Origin of a page's numbers: its cells with identity and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedbench.results import Result

CELL = (
    "suite", "scenario", "variant", "method", "seed", "status", "reason", "id", "seconds", "origin", "config",
)  # fmt: skip
WHERE = ("versions", "fingerprints", "machine", "git", "result_version", "ignored")


class Interned:
    """Values that many cells share, each kept once; a cell has its place."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        key = json.dumps(value, sort_keys=True)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


def origin(results: Sequence[Result]) -> dict[str, Any]:
    """What each cell was configured and computed as.

    Returns:
        `cells`: the fields of a row, and the rows. `configs`: by part of a configuration (`train`, `method`), its
        values; a cell's `config` has their places by the order of parts, null for a part that it lacks. `origins`:
        versions, fingerprints, machine and git revision that cells share. `started`: when the first of them was, and
        the last.
    """
    parts = dict.fromkeys(name for r in results for name in r.manifest.get("config", {}))
    configs = {name: Interned() for name in parts}
    origins = Interned()
    rows = []
    for r in results:
        config, e = r.manifest.get("config", {}), r.entry
        rows.append(
            (
                r.suite,
                e.scenario,
                e.variant,
                e.method,
                e.seed,
                r.status,
                _reason(r),
                e.cell,
                None if "computed_as" in r.manifest else r.manifest.get("seconds"),  # which is another's
                origins.place(_where(r)) if r.manifest else None,
                [configs[name].place(config[name]) if name in config else None for name in parts] if config else None,
            )
        )
    return {
        "cells": {"fields": CELL, "rows": rows},
        "configs": {name: found.values for name, found in configs.items()},
        "origins": origins.values,
        "started": _span(results),
    }


def _where(result: Result) -> dict[str, Any]:
    return {name: result.manifest.get(name) for name in WHERE}


def _reason(result: Result) -> str:
    return (result.fault or result.manifest.get("reason") or "").strip().partition("\n")[0]


def _span(results: Sequence[Result]) -> list[str]:
    """When the first and the last of the cells was started."""
    times = sorted(time for r in results if (time := r.manifest.get("started")))
    return [times[0], times[-1]] if times else []
