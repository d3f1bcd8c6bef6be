"""What a finished cell says, in short: enough to tell whether another run of it says the same."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.results.columns import COLUMNS
from fedbench.results.scores import average

if TYPE_CHECKING:
    import pyarrow

CODES = {"int32": "i", "int64": "q", "float64": "d"}  # of Python's arrays


@dataclass(frozen=True)
class Said:
    """digest: 16 hex digits over all scores of all evaluated rounds, to the bit; scores: by metric the average on test
    images after the last of them, as in a leaderboard, without what is no number; bytes (down and up) and FLOPs: of all
    clients in all rounds."""

    digest: str
    scores: Mapping[str, float]
    bytes: int
    flops: int


def told(evaluation: pyarrow.Table, rounds: pyarrow.Table) -> Said:
    """By the tables of a finished cell."""
    columns = {name: evaluation[name].to_pylist() for name in COLUMNS["eval"]}
    total = {name: sum(rounds[name].to_pylist()) for name in ("bytes_down", "bytes_up", "flops")}
    return Said(_digest(columns), _scores(columns), total["bytes_down"] + total["bytes_up"], total["flops"])


def _digest(columns: Mapping[str, Sequence[Any]]) -> str:
    found = hashlib.sha256()
    for name, kind in COLUMNS["eval"].items():
        values = columns[name]
        found.update("\0".join(values).encode() if kind == "string" else array(CODES[kind], values).tobytes())
        found.update(b"\0\0")
    return found.hexdigest()[:16]


def _scores(columns: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """On test images, after the last round."""
    last = max(columns["round"], default=0)
    found: dict[str, dict[tuple[str, int], float]] = {}
    names = ("round", "split", "metric", "domain", "client", "value")
    for t, split, metric, domain, client, value in zip(*(columns[name] for name in names), strict=True):
        if t == last and split == "test":
            found.setdefault(metric, {})[domain, client] = value
    averages = {metric: average(found[metric]) for metric in sorted(found)}
    return {metric: value for metric, value in averages.items() if math.isfinite(value)}
