"""What a run cost: its clients, the server where it computes along, and what crossed between them, kind by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.report.simulated import Simulated, mean_simulated, simulated

if TYPE_CHECKING:
    import pyarrow

    from fedbench.results import Result


@dataclass(frozen=True)
class Traffic:
    """Bytes of one kind: down to and up from one client in one round (means), and of all clients in all rounds."""

    down: float
    up: float
    total_down: float
    total_up: float


@dataclass(frozen=True)
class Cost:
    """What a run took: bytes and GFLOPs as means over client-rounds (one client in one round) and in total.

    memory_bytes: the largest estimate of any client · seconds: wall time of the cell.
    gamma: FedRA v2's Gamma* (Theorem 1), the smallest number of clients that trained a layer, over rounds t
    and the layers S^t trained in t. coverage: the mean of that number over all rounds and all layers ever
    trained, a layer that nobody held in a round counting 0. Only clients whose work arrived are counted; both
    are None where no layer is trained.
    server_*: what the server computes for clients, as a mean over the same client-rounds, in total, and the memory of
    one client at a time; None where it computes for nobody. exchange: the bytes by kind; empty where an older fedbench,
    which did not record it, computed the cell. simulated: None where clients have no devices.
    """

    client_rounds: float
    bytes_down: float
    bytes_up: float
    gflops: float
    total_bytes: float
    total_bytes_up: float
    total_gflops: float
    memory_bytes: float
    seconds: float
    gamma: int | None
    coverage: float | None
    server_gflops: float | None
    server_total_gflops: float | None
    server_memory_bytes: float | None
    exchange: Mapping[str, Traffic]
    simulated: Simulated | None = None


def cost(result: Result) -> Cost | None:
    """The cost of one finished run; None where no client ever took part."""
    table = result.rounds
    n = table.num_rows
    if n == 0:
        return None
    # to_pylist, here and elsewhere: the columns are short, and Arrow's to_numpy would import pandas.
    down, up, flops = (float(sum(table[name].to_pylist())) for name in ("bytes_down", "bytes_up", "flops"))
    both = [table[name].to_pylist() for name in ("memory_bytes", "workspace_bytes")]
    rounds, layers, arrived = (table[name].to_pylist() for name in ("round", "trained_layers", "arrived"))
    gamma, coverage = layer_coverage(rounds, layers, arrived, result.num_rounds)
    server = float(sum(result.server["flops"].to_pylist())) if result.server.num_rows else None
    return Cost(
        client_rounds=n,
        bytes_down=down / n,
        bytes_up=up / n,
        gflops=flops / n / 1e9,
        total_bytes=down + up,
        total_bytes_up=up,
        total_gflops=flops / 1e9,
        memory_bytes=float(max(memory + (beside or 0) for memory, beside in zip(*both, strict=True))),
        seconds=result.manifest.get("seconds", 0.0),
        gamma=gamma,
        coverage=coverage,
        server_gflops=None if server is None else server / n / 1e9,
        server_total_gflops=None if server is None else server / 1e9,
        server_memory_bytes=None if server is None else float(max(result.server["memory_bytes"].to_pylist())),
        exchange=_exchange(result.exchange, n),
        simulated=simulated(result),
    )


def _exchange(table: pyarrow.Table, client_rounds: int) -> dict[str, Traffic]:
    totals: dict[str, list[int]] = {}
    for what, *both in zip(*(table[name].to_pylist() for name in ("what", "bytes_down", "bytes_up")), strict=True):
        totals[what] = [a + b for a, b in zip(totals.get(what, (0, 0)), both, strict=True)]
    return {
        what: Traffic(down / client_rounds, up / client_rounds, float(down), float(up))
        for what, (down, up) in totals.items()
    }


def layer_coverage(
    rounds: Sequence[int], layers: Sequence[Sequence[int]], arrived: Sequence[bool], T: int
) -> tuple[int | None, float | None]:
    """(Gamma*, mean coverage) as `Cost` defines them; position i is one client in one of T rounds."""
    returned: dict[int, list[int]] = {}
    for t, held, came in zip(rounds, layers, arrived, strict=True):
        if came and held:
            returned.setdefault(t, []).extend(held)
    if not returned:
        return None, None
    holders = [Counter(of_round) for of_round in returned.values()]  # of each layer that came back in a round
    trained = set().union(*holders)
    return min(min(of.values()) for of in holders), sum(map(len, returned.values())) / (T * len(trained))


def mean_cost(costs: Sequence[Cost]) -> Cost | None:
    """Means over seeds; Gamma* is the smallest, and memory the largest of them."""
    if not costs:
        return None
    merged: dict[str, Any] = {}
    for name in Cost.__dataclass_fields__:
        values = [value for c in costs if (value := getattr(c, name)) is not None]
        merged[name] = SEEDS.get(name, _mean)(values) if values else None
    return Cost(**merged)


def _mean(seeds: Sequence[float]) -> float:
    return float(np.mean(seeds))


def _mean_exchange(seeds: Sequence[Mapping[str, Traffic]]) -> dict[str, Traffic]:
    """Over the seeds that recorded it, a kind that one of them never sent counting 0 there."""
    seeds, none = [seed for seed in seeds if seed], Traffic(0.0, 0.0, 0.0, 0.0)
    kinds = dict.fromkeys(what for seed in seeds for what in seed)
    return {
        what: Traffic(
            *(float(np.mean([getattr(seed.get(what, none), f) for seed in seeds])) for f in vars(none)),
        )
        for what in kinds
    }


# How the seeds' values of a cost become one, where that is not their mean.
SEEDS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "gamma": min,
    "memory_bytes": max,
    "server_memory_bytes": max,
    "exchange": _mean_exchange,
    "simulated": mean_simulated,
}
