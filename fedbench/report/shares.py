"""Which client trained which layer, and how often: what of it is drawn, wherever that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedbench.results import Result

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
    trained = {label: found for label, r in results.items() if (found := r.digest.trained)["deepest"] >= 0}
    if not trained:
        return {}, {}
    clients = [client for found in trained.values() for client in found["clients"]]
    L = max(max(most for *_, most in clients), 1 + max(found["deepest"] for found in trained.values()))
    groups, there = _groups(clients), _rounds_of(results[label] for label in trained)
    return {label: _shares(results[label], there, groups, L) for label in trained}, groups


def _rounds_of(results: Iterable[Result]) -> dict[int, int]:
    """In how many rounds each client was there at all, whichever method asked it."""
    asked: dict[int, set[int]] = {}
    for result in results:
        for client, rounds in result.digest.asked:
            asked.setdefault(client, set()).update(rounds)
    return {client: len(rounds) for client, rounds in asked.items()}


def _groups(clients: Sequence[tuple[int, str, int, int]]) -> dict[str, list[int]]:
    """The rows of the heat-maps: a client each, or all clients of a domain where there are many. clients: (client,
    domain, least and most capacity), as many times as there are methods."""
    domain = dict(sorted({client: domain for client, domain, *_ in clients}.items()))
    if len(domain) > MOST_CLIENTS:
        names = {d: [n for n in domain if domain[n] == d] for d in dict.fromkeys(domain.values())}
        return {f"{d} ({len(clients)})": clients for d, clients in names.items()}
    capacity: dict[int, set[int]] = {}
    for client, _, *span in clients:
        capacity.setdefault(client, set()).update(span)
    return {f"{n} · {domain[n]} · {_span(capacity[n])}": [n] for n in domain}


def _span(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)} to {max(values)}"


def _shares(result: Result, rounds: Mapping[int, int], groups: Mapping[str, Sequence[int]], L: int) -> Shares:
    """One method's part. rounds: in how many each client was there."""
    place = {client: i for i, clients in enumerate(groups.values()) for client in clients}
    there, trained = np.zeros(len(groups)), np.zeros((len(groups), L))
    for client, n in rounds.items():
        there[place[client]] += n
    for client, layer, n in result.digest.trained["layers"]:
        trained[place[client], layer] += n
    totals = result.digest.totals
    holders = trained.sum(0) / result.num_rounds
    return Shares(trained / there[:, None], holders, totals["gamma"] or 0, totals["coverage"] or 0.0)
