"""What a run cost: its clients, the server where it computes along, and what crossed between them, kind by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.report.simulated import Simulated, mean_simulated, simulated
from fedbench.results.scores import mean

if TYPE_CHECKING:
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

    memory_bytes: the largest estimate of any client · seconds: wall time of the cell, or of the one it was taken from.
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
    t = result.digest.totals
    if not (n := t["rows"]):
        return None
    server = t["server_flops"]
    return Cost(
        client_rounds=n,
        bytes_down=t["bytes_down"] / n,
        bytes_up=t["bytes_up"] / n,
        gflops=t["flops"] / n / 1e9,
        total_bytes=t["bytes_down"] + t["bytes_up"],
        total_bytes_up=t["bytes_up"],
        total_gflops=t["flops"] / 1e9,
        memory_bytes=t["memory"],
        seconds=result.manifest.get("seconds", 0.0),
        gamma=t["gamma"],
        coverage=t["coverage"],
        server_gflops=None if server is None else server / n / 1e9,
        server_total_gflops=None if server is None else server / 1e9,
        server_memory_bytes=t["server_memory"],
        exchange={
            what: Traffic(down / n, up / n, float(down), float(up)) for what, (down, up) in t["exchange"].items()
        },
        simulated=simulated(result),
    )


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
    return mean(seeds)


def _mean_exchange(seeds: Sequence[Mapping[str, Traffic]]) -> dict[str, Traffic]:
    """Over the seeds that recorded it, a kind that one of them never sent counting 0 there."""
    seeds, none = [seed for seed in seeds if seed], Traffic(0.0, 0.0, 0.0, 0.0)
    kinds = dict.fromkeys(what for seed in seeds for what in seed)
    return {
        what: Traffic(
            *(mean([getattr(seed.get(what, none), f) for seed in seeds]) for f in vars(none)),
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
