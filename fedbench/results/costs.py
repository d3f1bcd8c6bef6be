"""Costs of cells: totals over all rounds from a suite's whole tables, and running totals of each cell."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.results.scores import without_noise

if TYPE_CHECKING:
    import pandas
    import pyarrow

# By the name of a budget: columns of rounds.parquet, over all clients, or of clock.parquet.
PAID = {"bytes": ("bytes_down", "bytes_up"), "flops": ("flops",), "seconds": ("duration",), "joules": ("energy",)}
WAITED = "seconds"  # of PAID, how long the server waits
SIDES = ("down", "compute", "up", "server")  # of a client's round, the simulated seconds
SUMS = ("bytes_down", "bytes_up", "flops")
Whole = Callable[
    [str, Sequence[str]], "pyarrow.Table"
]  # reads columns of a table of all cells, after the column `cell`


@dataclass(frozen=True)
class Spending:
    """Running totals of a run: totals[i] is by the end of rounds[i]; rounds in which nobody takes part are left out.
    Work that was lost counts too."""

    rounds: Sequence[int]
    totals: Sequence[float]

    def by(self, t: int) -> float:
        """The total by the end of round t."""
        position = bisect_right(self.rounds, t)
        return self.totals[position - 1] if position else 0.0

    def until(self, amount: float) -> float:
        """The last round that ends within the amount; infinity where all of them do."""
        position = bisect_right(self.totals, without_noise(amount), key=without_noise)
        return self.rounds[position] - 1 if position < len(self.rounds) else math.inf

    @property
    def total(self) -> float:
        return self.totals[-1] if self.totals else 0.0


def spending(whole: Whole, what: str) -> dict[str, Spending]:
    """The running totals of one of PAID, by cell of which they are known."""
    rows = _frame(whole("clock" if what == WAITED else "rounds", ("round", *PAID[what])))
    first = rows.groupby("cell", observed=True)[PAID[what][0]]
    known = rows[first.transform("count") == first.transform("size")]
    amounts = known[[*PAID[what]]].astype(float).sum(axis=1)
    by_round = amounts.groupby([known["cell"].astype(str), known["round"]]).sum()
    return {
        str(id): Spending(own.index.get_level_values("round").tolist(), own.cumsum().tolist())
        for id, own in by_round.groupby(level="cell")
    }


def _frame(table: pyarrow.Table) -> pandas.DataFrame:
    found: pandas.DataFrame = table.to_pandas(use_threads=False)
    return found


def totals(whole: Whole) -> dict[str, dict[str, Any]]:
    """Sums and extremes over all rows of each cell that any client took part in, by its id.

    - rows: client-rounds; last: the last round
    - bytes_down, bytes_up, flops: as floats
    - memory: of each client's largest estimate, the smallest, the median and the largest
    - gamma: the fewest clients that trained a layer in a round, None where no layer came back
    - returned: how often a layer came back; layers: how many different ones did
    - server_flops, server_memory: None where the server computes for nobody
    - storage: bytes that the client with the most has kept, None where clients keep nothing
    - epsilon: of the client that sent most often, None where the suite asks for no privacy
    - exchange: bytes down and up by kind
    - simulated: None where clients have no devices

    Args:
        whole: reads some columns of a table of all cells, after a column `cell`; each is forgotten after its use.
    """
    import pandas

    rounds = _frame(whole("rounds", ("round", "client", *SUMS, "memory_bytes", "workspace_bytes")))
    by = rounds.astype(dict.fromkeys(SUMS, float)).groupby("cell", observed=True, sort=False)
    needed = rounds["memory_bytes"] + rounds["workspace_bytes"].fillna(0)
    largest = needed.groupby([rounds["cell"], rounds["client"]], observed=True).max().astype(float)
    memory = largest.groupby(level="cell", observed=True).agg(["min", "median", "max"])
    server = _frame(whole("server", ("flops", "memory_bytes"))).astype({"flops": float})
    of_server = server.groupby("cell", observed=True).agg({"flops": "sum", "memory_bytes": "max"}).astype(float)
    storage = _frame(whole("storage", ("stored_bytes",))).groupby("cell", observed=True).max().astype(float)
    privacy = _frame(whole("privacy", ("epsilon",))).groupby("cell", observed=True).max()
    parts: list[Any] = [by[list(SUMS)].sum(), by.size().rename("rows"), by["round"].max().rename("last")]
    parts += [_coverage(whole("rounds", ("round", "trained_layers", "arrived")))]
    parts += [of_server.set_axis(["server_flops", "server_memory"], axis=1), storage.set_axis(["storage"], axis=1)]
    parts += [privacy]
    joined = pandas.concat([part.set_axis(part.index.astype(str)) for part in parts], axis=1)
    joined = joined[joined["rows"].notna()].astype({"rows": int, "last": int, "gamma": "Int64"})
    joined[["returned", "layers"]] = joined[["returned", "layers"]].fillna(0).astype(int)
    found = joined.astype(object).where(joined.notna(), None).to_dict("index")
    for id, own in zip(memory.index, memory.itertuples(index=False, name=None), strict=True):
        found[str(id)] |= {"memory": list(own), "exchange": {}, "simulated": None}
    sent = _frame(whole("exchange", ("what", "bytes_down", "bytes_up")))
    of_kind = sent.groupby(["cell", "what"], observed=True, sort=False)[["bytes_down", "bytes_up"]].sum()
    for (id, kind), *both in of_kind.itertuples(name=None):
        if str(id) in found:
            found[str(id)]["exchange"][str(kind)] = both
    for id, simulated in _simulated(whole).items():
        if id in found:
            found[id]["simulated"] = simulated
    return {str(id): own for id, own in found.items()}


def _coverage(rounds: pyarrow.Table) -> pandas.DataFrame:
    """By cell in which a layer came back: how many clients trained it in each round, in short."""
    import pyarrow.compute as pc

    came = rounds.filter(rounds["arrived"])
    lists = came["trained_layers"].combine_chunks()
    rows = _frame(came.select(["cell", "round"])).iloc[pc.list_parent_indices(lists).to_numpy()]
    trained = rows.assign(layer=pc.list_flatten(lists).to_numpy())
    clients = trained.groupby(["cell", "round", "layer"], observed=True).size().groupby(level="cell", observed=True)
    layers = trained.groupby("cell", observed=True)["layer"].nunique()
    return clients.agg(["min", "sum"]).set_axis(["gamma", "returned"], axis=1).assign(layers=layers)


def _simulated(whole: Whole) -> dict[str, dict[str, Any]]:
    """By cell whose clients have devices, seconds and joules."""
    clock = _frame(whole("clock", ("clients", "duration", "idle_share")))
    if clock.empty:
        return {}
    busy = clock["clients"] * clock["duration"]
    clock = clock.assign(busy=busy, waiting=busy * clock["idle_share"])
    spent = clock.groupby("cell", observed=True)[["duration", "busy", "waiting"]].sum()
    spent["rounds"] = clock.groupby("cell", observed=True).size()
    sides = [f"{side}_seconds" for side in SIDES]
    rows = _frame(whole("rounds", (*sides, "energy")))
    missing = rows.drop(columns="cell").isna().groupby(rows["cell"], observed=True).any()
    sums = rows.groupby("cell", observed=True).agg({**dict.fromkeys(sides, "mean"), "energy": "sum"})
    found = {}
    for id, own in spent.to_dict("index").items():
        if id not in sums.index or missing.loc[str(id)][sides].any():
            continue
        of_clients: dict[Any, Any] = sums.loc[str(id)].to_dict()
        means = {side: of_clients[name] for side, name in zip(SIDES, sides, strict=True)}
        idle = own["waiting"] / own["busy"] if own["busy"] else 0.0
        joules = None if missing.loc[str(id)]["energy"] else of_clients["energy"]
        spans = {"round": own["duration"] / own["rounds"], "total": own["duration"]}
        found[str(id)] = {**spans, **means, "idle": idle, "joules": joules}
    return found
