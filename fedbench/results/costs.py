"""Costs of cells: totals over all rounds from a suite's whole tables, and running totals of one cell."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from fedbench.results.metric_direction import without_noise
from fedbench.results.store import CELL, spans
from fedbench.results.tables import filled, numbers

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

# By the name of a budget: columns of rounds.parquet, over all clients, or of clock.parquet.
PAID = {"bytes": ("bytes_down", "bytes_up"), "flops": ("flops",), "seconds": ("duration",), "joules": ("energy",)}
WAITED = "seconds"  # of PAID, how long the server waits
SIDES = ("down", "compute", "up", "server")  # of a client's round, the simulated seconds
SUMS = ("bytes_down", "bytes_up", "flops")
ROWS: tuple[Any, ...] = ([], "count_all")  # of a group, how many rows it has
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
    large = amounts.dtype.kind == "i" and float(amounts.sum(dtype=float)) > LARGEST_SUM
    paid = amounts.astype(object) if large else amounts
    totals = np.zeros(len(found), paid.dtype)
    np.add.at(totals, places, paid)  # one row after the other, as floats must be added for equal bits
    return Spending(found.tolist(), np.cumsum(totals).tolist())


def totals(whole: Callable[[str, Sequence[str]], pyarrow.Table]) -> dict[str, dict[str, Any]]:
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
        whole: reads some columns of a table of all cells, after a column `cell`; each is forgotten after its use.
    """
    found: dict[str, dict[str, Any]] = {}
    rounds = _exact(whole("rounds", ("round", *SUMS)), SUMS)
    wanted = [ROWS, ("round", "max"), *((name, "sum") for name in SUMS)]
    for id, n, last, *sums in _grouped(rounds, (CELL,), wanted):
        own = {"rows": n, "last": last, "sums": tuple(map(int, sums)), **dict(zip(SUMS, map(float, sums), strict=True))}
        others = ("gamma", "server_flops", "server_memory", "simulated")
        found[id] = {**own, **dict.fromkeys(others), "returned": 0, "layers": 0, "exchange": {}}
    exchange = _exact(whole("exchange", ("what", "bytes_down", "bytes_up")), ("bytes_down", "bytes_up"))
    for id, kind, *sent in _grouped(exchange, (CELL, "what"), [("bytes_down", "sum"), ("bytes_up", "sum")]):
        if id in found:
            found[id]["exchange"][kind] = [*map(int, sent)]
    coverage = _coverage(whole("rounds", ("round", "trained_layers", "arrived")))
    memory = _memory(whole("rounds", ("client", "memory_bytes", "workspace_bytes")))
    server = _server(whole("server", ("flops", "memory_bytes")))
    for id, facts in (*memory, *coverage, *server, *_simulated(whole)):
        if id in found:
            found[id].update(facts)
    return found


def _exact(table: pyarrow.Table, names: Sequence[str]) -> pyarrow.Table:
    """A table whose integers can be added up: those whose sum may overflow become decimals."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in names:
        if len(table) and pc.sum(table[name].cast(pa.float64())).as_py() > LARGEST_SUM:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(pa.decimal128(38)))
    return table


def _grouped(table: pyarrow.Table, keys: Sequence[str], wanted: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The keys of each group, in the order of first rows, and what is wanted of it, as Arrow's `aggregate` takes it."""
    found = table.group_by([*keys], use_threads=False).aggregate([*wanted])
    return zip(*(column.to_pylist() for column in found.columns), strict=True)


def _memory(rounds: pyarrow.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of each client's largest estimate over rounds, the smallest, the median and the largest, in bytes."""
    import pyarrow.compute as pc

    needed = pc.add(rounds["memory_bytes"], pc.fill_null(rounds["workspace_bytes"], 0))
    clients = rounds.append_column("needed", needed).group_by([CELL, "client"]).aggregate([("needed", "max")])
    for id, largest in _grouped(clients, (CELL,), [("needed_max", "list")]):
        yield id, {"memory": [float(of(largest)) for of in (min, median, max)]}


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
    for id, flops, memory in _grouped(_exact(server, ("flops",)), (CELL,), [("flops", "sum"), ("memory_bytes", "max")]):
        yield id, {"server_flops": float(flops), "server_memory": float(memory)}


def _simulated(whole: Callable[[str, Sequence[str]], pyarrow.Table]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of cells whose clients have devices, seconds and joules."""
    import pyarrow.compute as pc

    clock = whole("clock", ("clients", "duration", "idle_share"))
    if not len(clock):
        return
    sides = [f"{side}_seconds" for side in SIDES]
    rounds = whole("rounds", (*sides, "energy"))
    nulls = pc.CountOptions(mode="only_null")
    both = [*((name, "sum") for name in (*sides, "energy")), *((name, "count", nulls) for name in (*sides, "energy"))]
    clients = {id: (n, facts) for id, n, *facts in _grouped(rounds, (CELL,), [ROWS, *both])}
    span = pc.multiply(clock["clients"], clock["duration"])
    clock = clock.append_column("span", span).append_column("waiting", pc.multiply(clock["idle_share"], span))
    wanted = [ROWS, ("duration", "sum"), ("span", "sum"), ("waiting", "sum")]
    for id, n, total, span, waiting in _grouped(clock, (CELL,), wanted):
        if id not in clients:
            continue
        of, facts = clients[id]
        (*seconds, joules), (*unknown, unmetered) = facts[: len(SIDES) + 1], facts[len(SIDES) + 1 :]
        if not any(unknown):
            means = dict(zip(SIDES, (each / of for each in seconds), strict=True))
            found = {"round": total / n, "total": total, **means, "idle": waiting / span if span else 0.0}
            yield id, {"simulated": found | {"joules": None if unmetered else joules}}
