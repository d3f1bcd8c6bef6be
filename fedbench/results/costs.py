"""Costs of cells: totals over all rounds from a suite's whole tables, and running totals of one cell."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.results.metric_direction import without_noise

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

    from fedbench.results.tables import Whole

# By the name of a budget: columns of rounds.parquet, over all clients, or of clock.parquet.
PAID = {"bytes": ("bytes_down", "bytes_up"), "flops": ("flops",), "seconds": ("duration",), "joules": ("energy",)}
WAITED = "seconds"  # of PAID, how long the server waits
SIDES = ("down", "compute", "up", "server")  # of a client's round, the simulated seconds
SUMS = ("bytes_down", "bytes_up", "flops")
LARGEST_SUM = 2.0**62  # from which a sum of int64 may overflow
BLOCK = 64  # cells whose layers are counted at once: their lists take more memory than all other columns


@dataclass(frozen=True)
class Spending:
    """Running totals of a run: totals[i] is by the end of rounds[i]; rounds in which nobody takes part are left out.
    Work that was lost counts too."""

    rounds: Sequence[int]
    totals: Sequence[float]

    def by(self, t: int) -> float:
        """The total by the end of round t."""
        place = bisect_right(self.rounds, t)
        return self.totals[place - 1] if place else 0.0

    def until(self, amount: float) -> float:
        """The last round that ends within the amount; infinity where all of them do."""
        place = bisect_right(self.totals, without_noise(amount), key=without_noise)
        return self.rounds[place] - 1 if place < len(self.rounds) else math.inf

    @property
    def total(self) -> float:
        return self.totals[-1] if self.totals else 0.0


def spending(rounds: np.ndarray, amounts: np.ndarray) -> Spending:
    """The running totals of one cell.

    Args:
        rounds: of each row.
        amounts: of each row, bytes, FLOPs, joules or seconds.
    """
    import numpy as np

    found, places = np.unique(rounds, return_inverse=True)
    paid = exact(amounts)
    totals = np.zeros(len(found), paid.dtype)
    np.add.at(totals, places, paid)  # one row after the other, as floats must be added for equal bits
    return Spending(found.tolist(), np.cumsum(totals).tolist())


def exact(values: np.ndarray) -> np.ndarray:
    """Values as they can be added up: integers whose sum may overflow become Python's."""
    large = values.dtype.kind == "i" and float(abs(values).sum(dtype=float)) > LARGEST_SUM
    return values.astype(object) if large else values


def totals(whole: Callable[[str, Sequence[str]], Whole]) -> dict[str, dict[str, Any]]:
    """Sums and extremes over all rows of each cell that any client took part in, by its id.

    - rows: client-rounds; last: the last round
    - bytes_down, bytes_up, flops: as floats; sums: the same as integers
    - memory: of each client's largest estimate, the smallest, the median and the largest
    - gamma: the fewest clients that trained a layer in a round, None where no layer came back
    - returned: how often a layer came back; layers: how many different ones did
    - server_flops, server_memory: None where the server computes for nobody
    - exchange: bytes down and up by kind
    - simulated: None where clients have no devices

    Args:
        whole: reads some columns of a table of all cells; each column is read where it is used, and then forgotten.
    """
    import numpy as np

    rounds = whole("rounds", ("round", *SUMS))
    if not rounds.spans:
        return {}
    starts = rounds.starts
    columns: dict[str, Sequence[Any]] = {
        "rows": np.diff(starts, append=len(rounds.table)).tolist(),
        "last": np.maximum.reduceat(rounds.numbers("round"), starts).tolist(),
        "sums": list(zip(*(_sums(rounds, name) for name in SUMS), strict=True)),
        "memory": _memory(whole("rounds", ("client", "memory_bytes", "workspace_bytes"))),
    }
    found: dict[str, dict[str, Any]] = {
        id: (own := dict(zip(columns, values, strict=True)))
        | dict(zip(SUMS, map(float, own["sums"]), strict=True))
        | {"gamma": None, "returned": 0, "layers": 0, "server_flops": None, "server_memory": None, "simulated": None}
        for id, values in zip(rounds.spans, zip(*columns.values(), strict=True), strict=True)
    }
    sent = _exchange(whole("exchange", ("what", "bytes_down", "bytes_up")))
    for id, own in found.items():
        own["exchange"] = sent.get(id, {})
    coverage = _coverage(whole("rounds", ("round", "trained_layers", "arrived")))
    for some in (coverage, _server(whole("server", ("flops", "memory_bytes"))), _simulated(whole)):
        for id, own in some:
            if id in found:
                found[id].update(own)
    return found


def _sums(whole: Whole, name: str) -> list[int]:
    import numpy as np

    found: list[int] = np.add.reduceat(exact(whole.numbers(name)), whole.starts).tolist()
    return found


def _memory(rounds: Whole) -> list[list[float]]:
    """Of each client's largest estimate over rounds, the smallest, the median and the largest, in bytes."""
    import numpy as np

    key = rounds.cells << 32 | rounds.numbers("client").astype(np.uint32)
    order = np.argsort(key)
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    needed = rounds.numbers("memory_bytes") + rounds.numbers("workspace_bytes")
    largest, cells = np.maximum.reduceat(needed[order], first), key[first] >> 32
    largest = largest[np.lexsort((largest, cells))]
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    n = np.diff(starts, append=len(cells))
    middle = (largest[starts + (n - 1) // 2] + largest[starts + n // 2]) / 2
    return np.stack([largest[starts], middle, largest[starts + n - 1]], 1).tolist()


def _coverage(rounds: Whole) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of cells in which a layer came back: how many clients trained it in each round, in short."""
    import numpy as np

    ids, starts = list(rounds.spans), [*rounds.starts.tolist(), len(rounds.table)]
    when, arrived = rounds.numbers("round").astype(np.int64), rounds.numbers("arrived").astype(bool)
    for place in range(0, len(ids), BLOCK):
        last = min(place + BLOCK, len(ids))
        rows = slice(starts[place], starts[last])
        layers, of_row = rounds.lists("trained_layers", rows)
        came = arrived[rows][of_row]
        layers, of_row = layers[came].astype(np.uint16), of_row[came]
        key = (((rounds.cells[rows] - place) << 32 | when[rows]) << 16)[of_row] | layers
        trained, clients = np.unique(key, return_counts=True)
        cells = trained >> 48
        first = np.flatnonzero(np.diff(cells, prepend=-1))
        if not len(first):
            continue
        different = np.bincount(np.unique(cells << 16 | trained & 0xFFFF) >> 16)
        least, returned = np.minimum.reduceat(clients, first), np.add.reduceat(clients, first)
        for n, *facts in zip(cells[first].tolist(), least.tolist(), returned.tolist(), strict=True):
            yield ids[place + n], dict(zip(("gamma", "returned", "layers"), (*facts, int(different[n])), strict=True))


def _server(server: Whole) -> Iterator[tuple[str, dict[str, Any]]]:
    import numpy as np

    if server.spans:
        largest = np.maximum.reduceat(server.numbers("memory_bytes"), server.starts).tolist()
        for id, flops, memory in zip(server.spans, _sums(server, "flops"), largest, strict=True):
            yield id, {"server_flops": float(flops), "server_memory": float(memory)}


def _exchange(exchange: Whole) -> dict[str, dict[str, list[int]]]:
    """Bytes down and up, of all clients in all rounds, by cell and kind; kinds in the order of their first rows."""
    import numpy as np

    found: dict[str, dict[str, list[int]]] = {}
    if not exchange.spans:
        return found
    codes, kinds = exchange.codes("what")
    keys, first, places = np.unique(exchange.cells * len(kinds) + codes, return_index=True, return_inverse=True)
    both = []
    for name in ("bytes_down", "bytes_up"):
        values = exact(exchange.numbers(name))
        both.append(np.zeros(len(keys), values.dtype))
        np.add.at(both[-1], places, values)
    ids, order = list(exchange.spans), np.argsort(first)
    for key, *sent in zip(keys[order].tolist(), *(totals[order].tolist() for totals in both), strict=True):
        found.setdefault(ids[key // len(kinds)], {})[kinds[key % len(kinds)]] = sent
    return found


def _simulated(whole: Callable[[str, Sequence[str]], Whole]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of cells whose clients have devices, seconds and joules. `np.bincount` adds one row after the other."""
    import numpy as np

    clock = whole("clock", ("clients", "duration", "idle_share"))
    if not clock.spans:
        return
    rounds = whole("rounds", (*(f"{side}_seconds" for side in SIDES), "energy"))
    n, duration = clock.numbers("clients"), clock.numbers("duration")
    spans = n * duration
    of_clock = [
        np.bincount(clock.cells, weights).tolist() for weights in (duration, spans, clock.numbers("idle_share") * spans)
    ]
    seconds = {side: np.bincount(rounds.cells, rounds.numbers(f"{side}_seconds")) for side in SIDES}
    unknown = np.sum([np.bincount(rounds.cells, rounds.missing(f"{side}_seconds")) for side in SIDES], 0)
    joules, unmetered = (np.bincount(rounds.cells, of("energy")) for of in (rounds.numbers, rounds.missing))
    place = {id: i for i, id in enumerate(rounds.spans)}
    for id, total, span, waiting in zip(clock.spans, *of_clock, strict=True):
        if (i := place.get(id)) is None or unknown[i]:
            continue
        (first, end), (start, stop) = clock.spans[id], rounds.spans[id]
        means = {side: float(seconds[side][i]) / (stop - start) for side in SIDES}
        energy = None if unmetered[i] else float(joules[i])
        took = {"round": total / (end - first), "total": total, **means, "idle": waiting / span if span else 0.0}
        yield id, {"simulated": took | {"joules": energy}}


def asked(rounds: pyarrow.Table) -> list[tuple[int, list[int]]]:
    """Every client of one cell with the rounds that it was asked to take part in."""
    by_client: dict[int, set[int]] = {}
    for t, client in zip(*(rounds[name].to_pylist() for name in ("round", "client")), strict=True):
        by_client.setdefault(client, set()).add(t)
    return [(client, sorted(rounds)) for client, rounds in by_client.items()]


def trained(rounds: pyarrow.Table) -> dict[str, Any]:
    """clients: (client, domain, least and most capacity) · layers: (client, layer, in so many rounds it trained it and
    its work arrived) · deepest: the last layer that anybody trained, arrived or not; -1 for none."""
    clients: dict[int, tuple[str, int, int]] = {}
    names = ("client", "domain", "capacity", "trained_layers", "arrived")
    own, domains, capacities, layers, arrived = (rounds[name].to_pylist() for name in names)
    for client, domain, capacity in zip(own, domains, capacities, strict=True):
        _, least, most = clients.get(client, (domain, capacity, capacity))
        clients[client] = (domain, min(least, capacity), max(most, capacity))
    counts = Counter(
        (client, j) for client, held, came in zip(own, layers, arrived, strict=True) if came for j in held if j >= 0
    )
    return {
        "clients": [(client, *facts) for client, facts in clients.items()],
        "layers": [(*place, n) for place, n in sorted(counts.items())],
        "deepest": max((max(held) for held in layers if held), default=-1),
    }
