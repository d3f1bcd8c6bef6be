"""When a cell's models are tested, and what an evaluation table says of them round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedbench.types import GLOBAL

if TYPE_CHECKING:
    import pyarrow

EVALUATIONS = 5  # about how often over a run, where the suite does not say


def evaluated_rounds(rounds: int, every: int | None, at: Sequence[int] | str | None = None) -> set[int]:
    """The rounds (from 1) after which the model is tested: the last, and each `every`-th before it (default: a
    fifth of the run).

    at: instead, the last and these of them; `reference`, as FedRA's released code has it: the 21st, the 41st and so on,
    and the last four.
    """
    if isinstance(at, str):
        return {*range(21, rounds + 1, 20), *range(max(1, rounds - 3), rounds + 1)}
    if at is not None:
        return {rounds, *(t for t in at if t < rounds)}
    step = every or max(1, rounds // EVALUATIONS)
    return set(range(rounds, 0, -step))


def by_client(clients: Mapping[tuple[str, int], float]) -> bool:
    """Whether clients were tested, each on images of its own, and not domains."""
    return all(client != GLOBAL for _, client in clients)


def by_round(table: pyarrow.Table, metric: str, split: str) -> dict[int, dict[tuple[str, int], float]]:
    """The value of every (domain, client), by round."""
    values: dict[int, dict[tuple[str, int], float]] = {}
    names = ("round", "split", "domain", "client", "metric", "value")
    for t, part, domain, client, name, value in zip(*(table[n].to_pylist() for n in names), strict=True):
        if part == split and name == metric:
            values.setdefault(t, {})[domain, client] = value
    return values


def by_domain(clients: Mapping[tuple[str, int], float]) -> dict[str, float]:
    grouped: dict[str, dict[int, float]] = {}
    for (domain, client), value in clients.items():
        grouped.setdefault(domain, {})[client] = value
    return {d: by[GLOBAL] if GLOBAL in by else float(np.mean(list(by.values()))) for d, by in grouped.items()}


def average(clients: Mapping[tuple[str, int], float]) -> float:
    """The plain mean over clients where they were tested, else over domains."""
    return float(np.mean(list((clients if by_client(clients) else by_domain(clients)).values())))
