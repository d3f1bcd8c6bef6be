"""Which client trained which layer, and how often: what of it is drawn, wherever that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.report.cost import layer_coverage
from fedbench.results import Result

Rows = Sequence[Mapping[str, Any]]
NEEDED = ["round", "client", "domain", "capacity", "trained_layers", "arrived"]
MOST_CLIENTS = 24  # rows that stay readable; above, clients are drawn by domain


@dataclass(frozen=True)
class Shares:
    """What is drawn of one method: by row (a client, or all of a domain) and layer, the share (rows, L) of its rounds
    in which it trained the layer and its work arrived; and clients that did, in a mean round (L,)."""

    share: np.ndarray
    holders: np.ndarray
    gamma: int
    coverage: float


def by_method(results: Mapping[str, Result]) -> tuple[dict[str, Shares], dict[str, list[int]]]:
    """(what is drawn of every method that trains layers, by label; the clients of each row, by its name); both empty
    where none does."""
    rounds = {label: result.rounds.select(NEEDED).to_pylist() for label, result in results.items()}
    rounds = {label: rows for label, rows in rounds.items() if any(row["trained_layers"] for row in rows)}
    if not rounds:
        return {}, {}
    everybody = [row for rows in rounds.values() for row in rows]
    L = max(max(row["capacity"] for row in everybody), 1 + max(j for row in everybody for j in row["trained_layers"]))
    groups = _groups(everybody)
    found = {label: shares(rows, everybody, groups, L, results[label].num_rounds) for label, rows in rounds.items()}
    return found, groups


def _groups(everybody: Rows) -> dict[str, list[int]]:
    """The rows of the heat-maps: a client each, or all clients of a domain where there are many."""
    domain = dict(sorted({row["client"]: row["domain"] for row in everybody}.items()))
    if len(domain) > MOST_CLIENTS:
        names = {d: [n for n in domain if domain[n] == d] for d in dict.fromkeys(domain.values())}
        return {f"{d} ({len(clients)})": clients for d, clients in names.items()}
    capacity: dict[int, set[int]] = {}
    for row in everybody:
        capacity.setdefault(row["client"], set()).add(row["capacity"])
    return {f"{n} · {domain[n]} · {_span(capacity[n])}": [n] for n in domain}


def _span(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)} to {max(values)}"


def shares(rows: Rows, everybody: Rows, groups: Mapping[str, Sequence[int]], L: int, T: int) -> Shares:
    """One method's part of T rounds; everybody: the rows of all methods, which say in what rounds a client was there
    at all."""
    place = {client: i for i, clients in enumerate(groups.values()) for client in clients}
    asked = {(row["round"], row["client"]) for row in everybody}
    there = np.bincount([place[client] for _, client in asked], minlength=len(groups))
    trained = np.zeros((len(groups), L))
    for row in rows:
        if row["arrived"]:
            trained[place[row["client"]], row["trained_layers"]] += 1
    rounds, held, arrived = ([row[name] for row in rows] for name in ("round", "trained_layers", "arrived"))
    gamma, coverage = layer_coverage(rounds, held, arrived, T)
    holders = trained.sum(0) / T
    return Shares(trained / there[:, None], holders, gamma or 0, coverage or 0.0)
