"""Costs of cells: totals over all rounds from a suite's whole tables, and running totals of one cell."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from fedbench.results.metric_direction import without_noise
from fedbench.results.store import spans
from fedbench.results.tables import filled, numbers

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

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
    return Spending(found.tolist(), np.cumsum(_added(len(found), places, amounts)).tolist())


def _added(n: int, groups: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """The sums of n groups, one row after the other, as floats must be added for equal bits; groups: of each row."""
    import numpy as np

    large = amounts.dtype.kind == "i" and float(amounts.sum(dtype=float)) > LARGEST_SUM
    sums = np.zeros(n, object if large else amounts.dtype)
    np.add.at(sums, groups, amounts.astype(object) if large else amounts)
    return sums


def _largest(n: int, groups: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """The largest amount of each of n groups, 0 at least."""
    import numpy as np

    found = np.zeros(n, amounts.dtype)
    np.maximum.at(found, groups, amounts)
    return found


def _cells(table: pyarrow.Table) -> tuple[list[str], np.ndarray]:
    """The cells of a table by their ids, and the place of each row's there. Arrow's own groups would import pandas."""
    import numpy as np

    places = spans(table)
    return [*places], np.repeat(np.arange(len(places)), [end - start for start, end in places.values()])


def totals(whole: Callable[[str, Sequence[str]], pyarrow.Table]) -> dict[str, dict[str, Any]]:
    """Sums and extremes over all rows of each cell that any client took part in, by its id.

    - rows: client-rounds; last: the last round
    - bytes_down, bytes_up, flops: as floats; sums: the same as integers
    - memory: of each client's largest estimate, the smallest, the median and the largest
    - gamma: the fewest clients that trained a layer in a round, None where no layer came back
    - returned: how often a layer came back; layers: how many different ones did
    - server_flops, server_memory: None where the server computes for nobody
    - storage: bytes that the client with the most has kept, None where clients keep nothing
    - exchange: bytes down and up by kind
    - simulated: None where clients have no devices

    Args:
        whole: reads some columns of a table of all cells, after a column `cell`; each is forgotten after its use.
    """
    import numpy as np

    found: dict[str, dict[str, Any]] = {}
    rounds = whole("rounds", ("round", *SUMS))
    ids, cells = _cells(rounds)
    last = _largest(len(ids), cells, filled(rounds, "round")).tolist()
    sums = zip(*(_added(len(ids), cells, filled(rounds, name)).tolist() for name in SUMS), strict=True)
    for id, n, end, own in zip(ids, np.bincount(cells).tolist(), last, sums, strict=True):
        others = dict.fromkeys(("gamma", "server_flops", "server_memory", "storage", "simulated"))
        paid = {"sums": own, **dict(zip(SUMS, map(float, own), strict=True))}
        found[id] = {"rows": n, "last": end, **paid, **others, "returned": 0, "layers": 0, "exchange": {}}
    for id, kind, sent in _exchanged(whole("exchange", ("what", "bytes_down", "bytes_up"))):
        if id in found:
            found[id]["exchange"][kind] = sent
    coverage = _coverage(whole("rounds", ("round", "trained_layers", "arrived")))
    memory = _memory(whole("rounds", ("client", "memory_bytes", "workspace_bytes")))
    server = _server(whole("server", ("flops", "memory_bytes")))
    storage = _storage(whole("storage", ("stored_bytes",)))
    for id, facts in (*memory, *coverage, *server, *storage, *_simulated(whole)):
        if id in found:
            found[id].update(facts)
    return found


def _exchanged(exchange: pyarrow.Table) -> Iterator[tuple[str, str, list[int]]]:
    """Of each cell and kind, in the order of first rows, the bytes down and up."""
    import numpy as np

    if not len(exchange):
        return
    ids, cells = _cells(exchange)
    kinds = exchange["what"].combine_chunks().dictionary_encode()
    names, codes = kinds.dictionary.to_pylist(), numbers(kinds.indices)
    found, first, groups = np.unique(cells << 32 | codes, return_index=True, return_inverse=True)
    down, up = (_added(len(found), groups, filled(exchange, f"bytes_{way}")).tolist() for way in ("down", "up"))
    for i in np.argsort(first).tolist():
        yield ids[found[i] >> 32], names[found[i] & 0xFFFFFFFF], [down[i], up[i]]


def _memory(rounds: pyarrow.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of each client's largest estimate over rounds, the smallest, the median and the largest, in bytes."""
    import numpy as np

    ids, cells = _cells(rounds)
    needed = filled(rounds, "memory_bytes") + filled(rounds, "workspace_bytes")
    found, groups = np.unique(cells << 32 | filled(rounds, "client"), return_inverse=True)
    clients = np.split(_largest(len(found), groups, needed), np.flatnonzero(np.diff(found >> 32)) + 1)
    for id, largest in zip(ids, clients, strict=False):  # of no cell there is one empty part
        yield id, {"memory": [float(of(largest.tolist())) for of in (min, median, max)]}


def _coverage(rounds: pyarrow.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of cells in which a layer came back: how many clients trained it in each round, in short."""
    import numpy as np
    import pyarrow.compute as pc

    ids, ends = [*(places := spans(rounds))], [end for _, end in places.values()]
    for place in range(0, len(ids), BLOCK):
        start, end = places[ids[place]][0], ends[min(place + BLOCK, len(ids)) - 1]
        sizes = np.diff([start, *ends[place : place + BLOCK]])
        cells = np.repeat(np.arange(len(sizes)), sizes)  # numbers of cells, 64 of which leave room for a layer
        part = rounds.slice(start, end - start)
        came = filled(part, "arrived").astype(bool)
        rows = (cells << 32 | filled(part, "round"))[came] << 16
        held = part["trained_layers"].combine_chunks().filter(part["arrived"].combine_chunks())
        layers = numbers(held.flatten()).astype(np.uint16)
        trained, clients = np.unique(np.repeat(rows, numbers(pc.list_value_length(held))) | layers, return_counts=True)
        if not len(trained):
            continue
        cells = trained >> 48
        first = np.flatnonzero(np.diff(cells, prepend=-1))
        different = np.bincount(np.unique(cells << 16 | trained & 0xFFFF) >> 16)
        least, returned = np.minimum.reduceat(clients, first), np.add.reduceat(clients, first)
        for n, *facts in zip(cells[first].tolist(), least.tolist(), returned.tolist(), strict=True):
            yield ids[place + n], dict(zip(("gamma", "returned", "layers"), (*facts, int(different[n])), strict=True))


def _server(server: pyarrow.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    ids, cells = _cells(server)
    flops = _added(len(ids), cells, filled(server, "flops"))
    memory = _largest(len(ids), cells, filled(server, "memory_bytes"))
    for id, sum_of_flops, most in zip(ids, flops.tolist(), memory.tolist(), strict=True):
        yield id, {"server_flops": float(sum_of_flops), "server_memory": float(most)}


def _storage(storage: pyarrow.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    ids, cells = _cells(storage)
    for id, most in zip(ids, _largest(len(ids), cells, filled(storage, "stored_bytes")).tolist(), strict=True):
        yield id, {"storage": float(most)}


def _simulated(whole: Callable[[str, Sequence[str]], pyarrow.Table]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of cells whose clients have devices, seconds and joules."""
    import numpy as np

    clock = whole("clock", ("clients", "duration", "idle_share"))
    if not len(clock):
        return
    names = [*(f"{side}_seconds" for side in SIDES), "energy"]
    rounds = whole("rounds", names)
    ids, cells = _cells(rounds)
    sums = np.stack([_added(len(ids), cells, filled(rounds, name)) for name in names], 1)
    blank = [numbers(rounds[name].is_null().combine_chunks()).astype(int) for name in names]
    nulls = np.stack([_added(len(ids), cells, one) for one in blank], 1)
    of_clients = dict(zip(ids, zip(np.bincount(cells), sums, nulls, strict=True), strict=True))
    ids, cells = _cells(clock)
    span = filled(clock, "clients") * filled(clock, "duration")
    whole_round = (filled(clock, "duration"), span, filled(clock, "idle_share") * span)
    spent = zip(*(_added(len(ids), cells, one).tolist() for one in whole_round), strict=True)
    for id, n, (total, busy, waiting) in zip(ids, np.bincount(cells).tolist(), spent, strict=True):
        if id not in of_clients or of_clients[id][2][:-1].any():
            continue
        of, (*seconds, joules), (*_, unmetered) = of_clients[id]
        means = {side: float(each / of) for side, each in zip(SIDES, seconds, strict=True)}
        found = {"round": total / n, "total": total, **means, "idle": waiting / busy if busy else 0.0}
        yield id, {"simulated": found | {"joules": None if unmetered else float(joules)}}
