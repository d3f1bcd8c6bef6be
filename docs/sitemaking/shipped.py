"""What ships as data, so that lists of it need no import: `PYTHONPATH=docs python -m sitemaking.shipped` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fedbench
from fedbench.registry.installed import BUILT_IN, DESCRIBING, hash_of
from fedbench.registry.registry import Registry
from fedbench.suite import Suite, load
from fedbench.suite.shipped import LIST, names

REFERENCE = Path(__file__).resolve().parents[2] / "results/reference"
WORKERS = 2  # of the machine that the reference results were made on


def built_in() -> bytes:
    """What the plugins of fedbench register, by importing them."""
    registry = Registry()
    own = sorted(name for name in registry.entry_points if not registry.is_third_party(name))
    found = {
        name: {"code": hash_of(registry.entry_points[name].value), "registers": registry.registrations_here(name)}
        for name in own
    }
    return _text({"described": hash_of(*DESCRIBING), "plugins": found})


def suites(chosen: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What `fedbench suites list` says of suites that ship, by their names."""
    catalogue = Registry().catalogue
    return {name: _facts(load(names()[name], catalogue)) for name in chosen}


def _facts(suite: Suite) -> dict[str, Any]:
    """seconds: what all cells take, by those of results/reference; null where it has none of the suite by a CPU."""
    points = [*suite.points(), *suite.candidates()]
    return {
        "description": suite.description.rstrip("."),
        "data": sorted({point.dataset for point in points}),
        "cells": len(points),
        "tuned": suite.tuning is not None,
        "seconds": _seconds(suite.name, len(points)),
    }


def _seconds(suite: str, cells: int) -> float | None:
    if not (REFERENCE / suite).is_dir():
        return None
    found = fedbench.load(str(REFERENCE / suite)).cells
    by_cpu = [manifest["machine"]["device"] == "cpu" for manifest in found["manifest"]]
    return float(f"{found['seconds'][by_cpu].mean() * cells / WORKERS:.2g}") if any(by_cpu) else None


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    BUILT_IN.write_bytes(built_in())
    LIST.write_bytes(_text(suites(names())))
