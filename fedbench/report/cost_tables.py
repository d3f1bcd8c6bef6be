"""Costs: what clients and the server compute, what crosses between them, and what it takes on clients' devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.report.frames import Format
from fedbench.results.scores import mean

if TYPE_CHECKING:
    from fedbench.results import Result

# In the order of a round: what is given once, and then what every step exchanges.
KINDS = ("backbone", "additions", "adapters", "classifiers", "weights", "features", "gradients", "losses", "counts")


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

    memory_*: of each client's largest estimate, the smallest, the median and the largest over clients. seconds: wall
    time of the cell, or of the one it was taken from.
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
    memory_min: float
    memory_median: float
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
        memory_min=t["memory"][0],
        memory_median=t["memory"][1],
        memory_bytes=t["memory"][2],
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
    """Means over seeds; of Gamma* and the smallest memory the smallest, of the largest memory the largest."""
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
    "memory_min": min,
    "memory_bytes": max,
    "server_memory_bytes": max,
    "exchange": _mean_exchange,
    "simulated": mean_simulated,
}


# The tables of `costs`, with their captions.
PARTS = {
    "up": "what leaves the client (up)",
    "down": "what the client is sent (down)",
    "client": "what the client computes",
    "server": "what the server computes for it",
    "simulated": "what it takes on the clients' devices (simulated)",
    "run": "what the run took",
}
LEGEND = (
    "Bytes and FLOPs: of one client in one round, the mean over clients, rounds and seeds. whole run: of all clients "
    "in all rounds.",
    "memory min/med/max: an estimate; of each client's largest, the weakest, the median and the largest client. The "
    "server's is for one client at a time.",
    "Γ*, cover: smallest and mean number of clients that train a layer in a round. seconds: wall time of a cell.",
    "A dash: nothing of the kind. What averaging and testing cost is not counted.",
)
SIMULATED = (
    "simulated: down, compute and up of one client in one round; a round and the whole run as the server waits; idle: "
    "the share of the clients' time in which they neither send nor compute; energy: of all clients in all rounds."
)
FORMATS = {
    "up": Format("all kinds", "crossed", "low", "up"),
    "up_total": Format("whole run", "crossed", "low", "up"),
    "down": Format("all kinds", "crossed", "low", "down"),
    "down_total": Format("whole run", "crossed", "low", "down"),
    "gflops": Format("GFLOPs", "gflops", "low", "client"),
    "total_flops": Format("whole run", "flops", "low", "client"),
    "memory_min": Format("memory min/med/max", "bytes", "low", "client"),
    "server_gflops": Format("GFLOPs", "gflops", "low", "server"),
    "server_total_flops": Format("whole run", "flops", "low", "server"),
    "server_memory": Format("memory", "bytes", "low", "server"),
    "down_seconds": Format("down", "seconds", "low", "simulated"),
    "compute_seconds": Format("compute", "seconds", "low", "simulated"),
    "up_seconds": Format("up", "seconds", "low", "simulated"),
    "server_seconds": Format("server", "seconds", "low", "simulated"),
    "round_seconds": Format("a round", "seconds", "low", "simulated"),
    "simulated": Format("whole run", "seconds", "low", "simulated"),
    "idle": Format("idle", "share", "low", "simulated"),
    "energy": Format("energy", "joules", "low", "simulated"),
    "gamma": Format("Γ*", "int", "high", "run"),
    "coverage": Format("cover", "decimal", "high", "run"),
    "seconds": Format("seconds", "cell seconds", "low", "run"),
}


def kind_formats(costs: Sequence[Cost]) -> dict[str, Format]:
    """Of the columns `up_KIND` and `down_KIND`, one for each kind of data that any of these runs moved."""
    found = dict.fromkeys(kind for one in costs for kind in one.exchange)
    kinds = [*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS)]
    moved = {side: [k for k in kinds if any(_moved(one, k, side) for one in costs)] for side in ("up", "down")}
    return {f"{side}_{kind}": Format(kind, "crossed", "low", side) for side, own in moved.items() for kind in own}


def _moved(cost: Cost, kind: str, side: str) -> float:
    return float(getattr(cost.exchange[kind], side)) if kind in cost.exchange else 0.0


def detailed(cost: Cost, kinds: Mapping[str, Format]) -> Iterator[tuple[str, Any]]:
    """The columns of `costs` for one run, in bytes, FLOPs, seconds and joules. kinds: as of `kind_formats`."""
    for side, each, total in (
        ("up", cost.bytes_up, cost.total_bytes_up),
        ("down", cost.bytes_down, cost.total_bytes - cost.total_bytes_up),
    ):
        for name, format in kinds.items():
            if format.part == side:
                yield name, _moved(cost, format.title, side) if cost.exchange else None
        yield side, each
        yield f"{side}_total", total
    yield "gflops", cost.gflops
    yield "total_flops", 1e9 * cost.total_gflops
    yield from memory(cost)
    yield "server_gflops", cost.server_gflops
    yield "server_total_flops", None if cost.server_total_gflops is None else 1e9 * cost.server_total_gflops
    yield "server_memory", cost.server_memory_bytes
    took = cost.simulated
    for name in ("down", "compute", "up", "server", "round"):
        yield f"{name}_seconds", (getattr(took, name) or None) if took else None
    yield "simulated", took.total if took else None
    yield "idle", took.idle if took else None
    yield "energy", took.joules if took else None
    yield "gamma", cost.gamma
    yield "coverage", cost.coverage
    yield "seconds", cost.seconds


def brief(cost: Cost) -> Iterator[tuple[str, Any]]:
    """The costs that a leaderboard shows, in bytes, GFLOPs, seconds and joules."""
    yield "bytes", cost.bytes_down + cost.bytes_up
    yield "gflops", cost.gflops
    yield from memory(cost)
    yield "server_gflops", cost.server_gflops
    yield "server_memory", cost.server_memory_bytes
    yield "simulated", cost.simulated.total if cost.simulated else None
    yield "energy", cost.simulated.joules if cost.simulated else None


def memory(cost: Cost) -> Iterator[tuple[str, float]]:
    """Of the weakest, the median and the largest client, in bytes."""
    yield "memory_min", cost.memory_min
    yield "memory_median", cost.memory_median
    yield "memory_max", cost.memory_bytes
