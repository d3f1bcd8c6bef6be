"""Budgets and costs: what runs took of bytes, FLOPs, joules and seconds, and methods at equal expense of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.errors import UserError
from fedbench.results.costs import PAID
from fedbench.results.scores import mean
from fedbench.words import amount_of

if TYPE_CHECKING:
    from fedbench.results import Result

MEANING = {
    "bytes": "bytes down + up of all clients together",
    "flops": "FLOPs of all clients together",
    "seconds": "simulated time, as the server waits",
    "joules": "energy of all clients together",
}
UNKNOWN = {
    "seconds": "no simulated seconds, because the scenario gives its clients no devices",
    "joules": "no joules, because the scenario gives its clients no devices",
}

Costs = Mapping[str, Any]  # by the columns of `fedbench.report.views.costs`, in bytes, FLOPs, seconds and joules


@dataclass(frozen=True)
class Budget:
    """What all clients together may spend, or how many simulated seconds the server may have waited.

    what: "bytes" (down and up), "flops", "joules" or "seconds". amount: None for what the cheapest method of a
    leaderboard spends in all its rounds.
    """

    what: str
    amount: float | None = None


def read_budget(text: str) -> Budget | None:
    """`bytes`, `bytes=1.5GB`, `flops=2PFLOPs`, `seconds=1h 30min`, `joules=2kWh`; None for any other word.

    Raises:
        UserError: for an amount that is none.
    """
    what, sign, amount = text.partition("=")
    if what not in PAID:
        return None
    try:
        return Budget(what, amount_of(amount, what) if sign else None)
    except ValueError as error:
        raise UserError(f"--at {text}: {error}") from None


def unknown(results: Iterable[Result], what: str) -> str:
    """Why nobody knows what these have spent."""
    given = [devices for r in results if (devices := r.manifest.get("config", {}).get("devices"))]
    known = [(name, numbers) for one in given for name, numbers in one["known"].items() if name != one.get("server")]
    lacking = {name for name, numbers in known if numbers.get("watts") is None}
    if what == "joules" and lacking:
        names = ", ".join(sorted(lacking))
        return f"no joules, because nothing is known of the watts of {names}"
    return UNKNOWN.get(what, "no costs")


def check_known(results: Iterable[Result], what: str) -> None:
    """Raises: UserError where results are finished and of none is known what it has paid."""
    finished = [r for r in results if r.status == "finished"]
    if what in UNKNOWN and finished and not any(r.paid(what) for r in finished):
        raise UserError(
            f"these results have {unknown(finished, what)}.\n`devices:` in a suite's scenario gives them some."
        )


def cheapest(
    cells: Mapping[str, Iterable[Result]], what: str, methods: Collection[str] = ()
) -> tuple[str, float] | None:
    """The method that spends least in all its rounds, and how much; None where nothing has been spent.

    Args:
        cells: by method, its results. The dearest finished seed counts, so that all seeds stand at their last round.
        what: what is spent.
        methods: those that may set the budget; a control or a floor may not, or the others would have had no round.
            Where none of them has spent anything, all may whose clients compute.
    """
    totals = {
        label: max(spent)
        for label, results in cells.items()
        if (spent := [s.total for r in results if _computes(r) and (s := r.paid(what))]) and max(spent) > 0
    }
    own = {label: total for label, total in totals.items() if label in methods} or totals
    return min(own.items(), key=lambda item: item[1], default=None)


def _computes(result: Result) -> bool:
    """Whether it is finished, and its clients have computed."""
    return result.status == "finished" and (flops := result.paid("flops")) is not None and flops.total > 0


def cost(result: Result) -> Costs | None:
    """What one finished run took, by the columns of `fedbench.report.views.costs`; None where no client ever took part.

    Bytes and GFLOPs are means over client-rounds (one client in one round), memory the estimates of the weakest, the
    median and the largest client. gamma is FedRA v2's Gamma* (Theorem 1): the smallest number of clients that trained a
    layer, over rounds t and the layers S^t trained in t. coverage is the mean of that number over all rounds and all
    layers ever trained, a layer that nobody held in a round counting 0. Both count clients whose work arrived, and are
    None where no layer is trained. exchange has the bytes (down, up) by kind, none where they were not recorded.
    """
    t = result.totals
    if not (n := t["rows"]):
        return None
    took, server = t["simulated"] or {}, t["server_flops"]
    sides = {"up": t["bytes_up"], "down": t["bytes_down"]}
    return {
        **{side: total / n for side, total in sides.items()},
        **{f"{side}_total": total for side, total in sides.items()},
        "gflops": t["flops"] / n / 1e9,
        "total_flops": t["flops"],
        **dict(zip(("memory_min", "memory_median", "memory_max"), t["memory"], strict=True)),
        "server_gflops": None if server is None else server / n / 1e9,
        "server_total_flops": server,
        "server_memory": t["server_memory"],
        "storage": t["storage"],
        **{f"{name}_seconds": took.get(name) or None for name in ("down", "compute", "up", "server", "round")},
        "simulated": took.get("total"),
        "idle": took.get("idle"),
        "energy": took.get("joules"),
        "epsilon": t["epsilon"],
        "gamma": t["gamma"],
        "coverage": t["coverage"],
        "seconds": result.manifest.get("seconds", 0.0),
        "exchange": {kind: (down / n, up / n) for kind, (down, up) in t["exchange"].items()},
    }


def mean_cost(costs: Sequence[Costs]) -> Costs | None:
    """Means over seeds; of Gamma* and the smallest memory the smallest, of the largest memory the largest."""
    if not costs:
        return None
    found: dict[str, Any] = {}
    for name in costs[0]:
        values = [one[name] for one in costs if one[name] is not None]
        found[name] = SEEDS.get(name, mean)(values) if values else None
    if any(one["energy"] is None and one["simulated"] is not None for one in costs):  # not known of every seed
        found["energy"] = None
    return found | {"bytes": found["down"] + found["up"]}


def _mean_exchange(seeds: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, tuple[float, ...]]:
    """Over the seeds that recorded it, a kind that one of them never sent counting 0 there."""
    recorded = [seed for seed in seeds if seed]
    kinds = dict.fromkeys(kind for seed in recorded for kind in seed)
    return {
        kind: tuple(mean(side) for side in zip(*(seed.get(kind, (0.0, 0.0)) for seed in recorded), strict=True))
        for kind in kinds
    }


# How the seeds' values of a cost become one, where that is not their mean.
SEEDS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "gamma": min, "memory_min": min, "memory_max": max, "server_memory": max, "storage": max, "epsilon": max,
    "exchange": _mean_exchange,
}  # fmt: skip
