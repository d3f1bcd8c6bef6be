"""What leaderboards and pages need of a finished cell's tables, in parts, each made when it is asked for.

A part is a JSON value (the scores are numbers and their layout), so that it can be kept beside the cell's manifest and
read back to the bit: `fedbench.results.kept`. Whoever asks cannot tell which of the two it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from fedbench.results.coverage import WIDE, layer_coverage
from fedbench.results.cumulative_cost import PAID, Spending, spending
from fedbench.results.score_digest import Said, told
from fedbench.results.scores import Layout, Scores

if TYPE_CHECKING:
    import pyarrow

CLOCK = ("down", "compute", "up", "server")  # of what a client does, the simulated seconds
WAITED = "seconds"  # of PAID, what the server waits


class Tables(Protocol):
    """A result, as far as a digest is made of it."""

    @property
    def manifest(self) -> Mapping[str, Any]: ...
    @property
    def eval(self) -> pyarrow.Table: ...
    @property
    def rounds(self) -> pyarrow.Table: ...
    @property
    def exchange(self) -> pyarrow.Table: ...
    @property
    def server(self) -> pyarrow.Table: ...
    @property
    def clock(self) -> pyarrow.Table: ...


class Digest:
    """Of one finished cell. part: makes, or reads back, one of PARTS by its name."""

    def __init__(self, part: Callable[[str], Any]) -> None:
        self.part = part

    @cached_property
    def scores(self) -> Scores:
        return Scores(self.part("layout"), self.part("values"))

    @cached_property
    def totals(self) -> Mapping[str, Any]:
        """As `_totals` has them."""
        return self.part("totals")

    @cached_property
    def said(self) -> Said:
        return Said(**self.part("said"))

    def paid(self, what: str) -> Spending | None:
        """One of PAID; None where it is not known, for want of devices or of their watts."""
        found = self.part(f"paid {what}")
        return Spending(*found) if found else None

    @cached_property
    def trained(self) -> Mapping[str, Any]:
        """As `_trained` has it."""
        return self.part("trained")

    @property
    def asked(self) -> Sequence[tuple[int, Sequence[int]]]:
        """Every client with the rounds that it was asked to take part in."""
        return self.part("asked")


def digest_of(result: Tables) -> Digest:
    """Of a finished cell's tables. Raises: UserError, when a part is asked for, where they are not as written."""
    return Digest(lambda name: PARTS[name](result))


def _layout(result: Tables) -> Layout:
    return Scores.of(result.eval).layout


def _values(result: Tables) -> list[float]:
    return result.eval["value"].to_pylist()


def _totals(result: Tables) -> dict[str, Any]:
    """Sums and extremes over all rows, for `fedbench.report.cost`; `rows` and `last` (the last round) alone where no
    client ever took part."""
    table = result.rounds
    rounds = table["round"].to_pylist()
    found: dict[str, Any] = {"rows": table.num_rows, "last": max(rounds, default=1)}
    if not rounds:
        return found
    # to_pylist, here and elsewhere: the columns are short, and Arrow's to_numpy would import pandas.
    sums = {name: float(sum(table[name].to_pylist())) for name in ("bytes_down", "bytes_up", "flops")}
    both = [table[name].to_pylist() for name in ("memory_bytes", "workspace_bytes")]
    layers, arrived = (table[name].to_pylist() for name in ("trained_layers", "arrived"))
    gamma, coverage = layer_coverage(rounds, layers, arrived, _rounds(result, found["last"]))
    server = result.server
    return found | sums | {
        "memory": _memory(table["client"].to_pylist(), *both),
        "gamma": gamma,
        "coverage": coverage,
        "server_flops": float(sum(server["flops"].to_pylist())) if server.num_rows else None,
        "server_memory": float(max(server["memory_bytes"].to_pylist())) if server.num_rows else None,
        "exchange": _exchange(result),
        "simulated": _simulated(result),
    }  # fmt: skip


def _memory(clients: Sequence[int], memory: Sequence[int], workspace: Sequence[int | None]) -> list[float]:
    """Of each client's largest estimate over rounds, the smallest, the median and the largest, in bytes."""
    largest: dict[int, int] = {}
    for client, own, beside in zip(clients, memory, workspace, strict=True):
        largest[client] = max(largest.get(client, 0), own + (beside or 0))
    return [float(min(largest.values())), float(median(largest.values())), float(max(largest.values()))]


def _rounds(result: Tables, last: int) -> int:
    """T, as configured; where a stranger's configuration says less, the last round that is recorded."""
    return max(result.manifest.get("config", {}).get("train", {}).get("rounds", 0), last, 1)


def _exchange(result: Tables) -> dict[str, list[int]]:
    """Bytes down and up, of all clients in all rounds, by kind."""
    totals: dict[str, list[int]] = {}
    names = ("what", "bytes_down", "bytes_up")
    for what, *both in zip(*(result.exchange[name].to_pylist() for name in names), strict=True):
        totals[what] = [a + b for a, b in zip(totals.get(what, (0, 0)), both, strict=True)]
    return totals


def _simulated(result: Tables) -> dict[str, float | None] | None:
    """As `fedbench.report.simulated.Simulated`; None where clients have no devices."""
    table, clock = result.rounds, result.clock
    untold = any(table[f"{name}_seconds"].null_count for name in CLOCK)
    if untold or not (T := clock.num_rows):
        return None
    clients, durations, idle = (clock[name].to_pylist() for name in ("clients", "duration", "idle_share"))
    total, spans = sum(durations), [n * duration for n, duration in zip(clients, durations, strict=True)]
    waiting = sum(share * span for share, span in zip(idle, spans, strict=True))
    means = {name: float(sum(table[f"{name}_seconds"].to_pylist())) / table.num_rows for name in CLOCK}
    joules = None if table["energy"].null_count else float(sum(table["energy"].to_pylist()))
    ratio = waiting / sum(spans) if sum(spans) else 0.0
    return {"round": total / T, "total": total, **means, "idle": ratio, "joules": joules}


def _said(result: Tables) -> dict[str, Any]:
    return vars(told(result.eval, result.rounds))


def _paid(what: str, result: Tables) -> list[Sequence[float]] | None:
    if what == WAITED:  # nobody waits where nobody ever takes part
        known = result.clock.num_rows or not result.rounds.num_rows
        return _listed(spending(result.clock, what)) if known else None
    known = not any(result.rounds[name].null_count for name in PAID[what])
    return _listed(spending(result.rounds, what)) if known else None


def _listed(found: Spending) -> list[Sequence[float]]:
    return [found.rounds, found.totals]


def _asked(result: Tables) -> list[tuple[int, list[int]]]:
    by_client: dict[int, set[int]] = {}
    for t, client in zip(*(result.rounds[name].to_pylist() for name in ("round", "client")), strict=True):
        by_client.setdefault(client, set()).add(t)
    return [(client, sorted(rounds)) for client, rounds in by_client.items()]


def _trained(result: Tables) -> dict[str, Any]:
    """clients: (client, domain, least and most capacity) · layers: (client, layer, in so many rounds it trained it and
    its work arrived) · deepest: the last layer that anybody trained, arrived or not; -1 for none."""
    clients: dict[int, tuple[str, int, int]] = {}
    names = ("client", "domain", "capacity", "trained_layers", "arrived")
    own, domains, capacities, layers, arrived = (result.rounds[name].to_pylist() for name in names)
    for client, domain, capacity in zip(own, domains, capacities, strict=True):
        _, least, most = clients.get(client, (domain, capacity, capacity))
        clients[client] = (domain, min(least, capacity), max(most, capacity))
    there = [held if came else () for held, came in zip(layers, arrived, strict=True)]
    counts = Counter(client * WIDE + j for client, held in zip(own, there, strict=True) for j in held if j >= 0)
    deepest = max((max(held) for held in layers if held), default=-1)
    return {
        "clients": [(client, *facts) for client, facts in clients.items()],
        "layers": [(*divmod(place, WIDE), n) for place, n in sorted(counts.items())],
        "deepest": deepest,
    }


PARTS: Mapping[str, Callable[[Tables], Any]] = {
    "layout": _layout,
    "values": _values,
    "totals": _totals,
    "said": _said,
    "asked": _asked,
    "trained": _trained,
    **{f"paid {what}": partial(_paid, what) for what in PAID},
}
