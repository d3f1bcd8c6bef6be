"""What a run would have taken on its clients' devices: simulated seconds, idle time and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedbench.results import Result


PARTS = ("down", "compute", "up", "server")


@dataclass(frozen=True)
class Simulated:
    """Seconds, as the server waits, and joules.

    round: the mean duration of a round · total: of all rounds · down, compute, up, server: means over client-rounds,
    the last what a client waits while the server computes for it · idle: of the clients' time in all rounds, the part
    in which they neither sent nor computed · joules: of all clients in all rounds; None where a device has no watts.
    """

    round: float
    total: float
    down: float
    compute: float
    up: float
    server: float
    idle: float
    joules: float | None


def simulated(result: Result) -> Simulated | None:
    """Of one finished run; None where its clients have no devices."""
    untold = any(result.rounds[f"{name}_seconds"].null_count for name in PARTS)
    if untold or not (T := result.clock.num_rows):
        return None
    clients, durations, idle = (result.clock[name].to_pylist() for name in ("clients", "duration", "idle_share"))
    total, spans = sum(durations), [n * duration for n, duration in zip(clients, durations, strict=True)]
    waiting = sum(share * span for share, span in zip(idle, spans, strict=True))
    down, compute, up, server = (_sum(result, f"{name}_seconds") / result.rounds.num_rows for name in PARTS)
    joules = None if result.rounds["energy"].null_count else _sum(result, "energy")
    return Simulated(total / T, total, down, compute, up, server, waiting / sum(spans) if sum(spans) else 0.0, joules)


def _sum(result: Result, column: str) -> float:
    return float(sum(result.rounds[column].to_pylist()))


def mean_simulated(seeds: Sequence[Simulated]) -> Simulated:
    """Over seeds; what is not known of all of them is not known."""
    found: dict[str, Any] = {}
    for name in Simulated.__dataclass_fields__:
        values = [getattr(seed, name) for seed in seeds]
        found[name] = None if None in values else float(np.mean(values))
    return Simulated(**found)
