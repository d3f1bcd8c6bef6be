"""What a run would have taken on its clients' devices: simulated seconds, idle time and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.results.digest import CLOCK
from fedbench.results.scores import mean

if TYPE_CHECKING:
    from fedbench.results import Result


PARTS = CLOCK


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
    found = result.digest.totals["simulated"]
    return found and Simulated(**found)


def mean_simulated(seeds: Sequence[Simulated]) -> Simulated:
    """Over seeds; what is not known of all of them is not known."""
    found: dict[str, Any] = {}
    for name in Simulated.__dataclass_fields__:
        values = [getattr(seed, name) for seed in seeds]
        found[name] = None if None in values else mean(values)
    return Simulated(**found)
