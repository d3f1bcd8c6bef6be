"""The per-layer weighted mean over M (FedRA v1, Eq. 3), and its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedbench.models.places import shared_holders
from fedbench.types import Cohort, Plan, Uploads

WEIGHTS = ("examples", "uniform")


def client_weights(cohort: Cohort, weights: str) -> Tensor:
    """(N,) float64: |D_n| for `examples`, ones for `uniform`."""
    return cohort.num_examples.double() if weights == "examples" else torch.ones(len(cohort), dtype=torch.float64)


def mean(rows: Tensor, weights: Tensor) -> Tensor:
    """sum_n w_n rows_n / sum_n w_n over the first axis. rows (n, ...), weights (n,) -> (...)."""
    share = (weights / weights.sum()).to(rows.device, rows.dtype)
    averaged: Tensor = torch.tensordot(share, rows, dims=1)
    return averaged


def mean_of_returned(
    old: dict[str, Tensor], rows: dict[str, Tensor], returned: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """Average the rows that came back; where none did, keep last round's values.

    rows[name]: (n, ...) from the holders · returned: (n,) bool, which of them arrived · weights: (n,).
    """
    if not returned.any():
        return {name: value.clone() for name, value in old.items()}
    return {name: mean(rows[name][returned], weights[returned]) for name in old}


def weighted_mean(
    state: dict[str, Any], uploads: Uploads, plan: Plan, cohort: Cohort, weights: str = "examples"
) -> dict[str, Any]:
    """r_j = sum_{n: M_nj = 1} |D_n| r_j^n / sum_n M_nj |D_n|; a layer nobody returned keeps its value (FedRA v1,
    Eq. 3).

    Each shared tensor is averaged in the same way over the clients that hold it.
    """
    w = client_weights(cohort, weights)
    r = [
        mean_of_returned(state["r"][j], uploads.r[j], uploads.arrived[plan.M[:, j]], w[plan.M[:, j]])
        for j in range(plan.M.shape[1])
    ]
    return {**state, "r": r, "shared": shared_mean(state["shared"], uploads, plan, w)}


def by_tensor(
    state: dict[str, Any], uploads: Uploads, plan: Plan, change: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> dict[str, Any]:
    """change(old (...), rows (n, ...), held (N,) bool) of every tensor, under `r` and `shared` as in the state; the n
    rows are those of the clients that hold it, whether they arrived or not."""
    r = [
        {name: change(old, uploads.r[j][name], plan.M[:, j]) for name, old in r_j.items()}
        for j, r_j in enumerate(state["r"])
    ]
    shared = {
        name: change(old, uploads.shared[name], shared_holders(plan, name)) for name, old in state["shared"].items()
    }
    return {"r": r, "shared": shared}


def each_returned(
    state: dict[str, Any], uploads: Uploads, plan: Plan, combine: Callable[[Tensor], Tensor]
) -> dict[str, Any]:
    """The state with combine(rows (n, ...)) -> (...) of the n rows that came back in place of every tensor; one that
    nobody returned keeps its value."""

    def new(old: Tensor, rows: Tensor, held: Tensor) -> Tensor:
        came = uploads.arrived[held]
        return combine(rows[came]) if came.any() else old.clone()

    return {**state, **by_tensor(state, uploads, plan, new)}


def trimmed(rows: Tensor, cut: int) -> Tensor:
    """The mean of every coordinate without its `cut` smallest and its `cut` largest values. rows (n, ...) -> (...)."""
    if not cut:
        return rows.mean(0)
    return rows.sort(0).values[cut : len(rows) - cut].mean(0)


def shared_mean(old: dict[str, Tensor], uploads: Uploads, plan: Plan, weights: Tensor) -> dict[str, Tensor]:
    """The mean of every shared tensor over its holders; weights (N,)."""
    new: dict[str, Tensor] = {}
    for name, value in old.items():
        held = shared_holders(plan, name)
        new |= mean_of_returned({name: value}, uploads.shared, uploads.arrived[held], weights[held])
    return new
