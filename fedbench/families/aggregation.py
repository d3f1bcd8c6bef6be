"""The per-layer weighted mean over M (FedRA v1, Eq. 3), and its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedbench.models.param_paths import trained_by
from fedbench.types import Cohort, Plan, Uploads

Weights = Literal["examples", "uniform"]
WEIGHTS = get_args(Weights)
Aggregate = Callable[[dict[str, Any], Uploads, Plan, Cohort], dict[str, Any]]
PLAIN_MEAN = {"name": "weighted_mean", "weights": "uniform"}
MEAN_BY_EXAMPLES = {"name": "weighted_mean", "weights": "examples"}


def client_weights(cohort: Cohort, weights: str) -> Tensor:
    """(N,) float64: |D_n| for `examples`, ones for `uniform`."""
    return cohort.num_examples.double() if weights == "examples" else torch.ones(len(cohort), dtype=torch.float64)


def mean(rows: Tensor, weights: Tensor) -> Tensor:
    """sum_n w_n rows_n / sum_n w_n over the first axis. rows (n, ...), weights (n,) -> (...)."""
    share = (weights / weights.sum()).to(rows.device, rows.dtype)
    averaged: Tensor = torch.tensordot(share, rows, dims=1)
    return averaged


def mean_or_old(old: Tensor, rows: Tensor, returned: Tensor, weights: Tensor, trained: Tensor | None = None) -> Tensor:
    """The mean of the rows that came back; where none did, last round's value.

    Args:
        old: (...).
        rows: (n, ...) from those who train the tensor.
        returned: (n,) bool, which of them arrived.
        weights: (n,).
        trained: which coordinates of its row each trained, where that is not all (see `Uploads`): each coordinate is
            averaged over those who trained it.
    """
    if not returned.any():
        return old.clone()
    if not returned.all():  # to choose among rows of a GPU waits for it
        rows, weights, trained = rows[returned], weights[returned], None if trained is None else trained[returned]
    return mean(rows, weights) if trained is None else mean_by_coordinate(old, rows, trained, weights)


def mean_by_coordinate(old: Tensor, rows: Tensor, trained: Tensor, weights: Tensor) -> Tensor:
    """sum_n w_n m_n rows_n / sum_n w_n m_n for every coordinate, old (...) where nobody trained it.

    rows (n, ...); trained, m: bool in the rows' shape, or broadcast to it; weights (n,).
    """
    w = weights.to(rows.device, rows.dtype).reshape(-1, *[1] * old.dim()) * trained
    total = w.sum(0)
    averaged = (w * rows).sum(0) / total.where(total > 0, torch.ones_like(total))
    return torch.where(total > 0, averaged, old)


def averaging(weights: str) -> Callable[[Aggregate], Aggregate]:
    """Mark an aggregator that reads nothing of uploads but means of every number over those who trained it.

    The divisor may be larger than their weights. See `Method.averages`.

    Args:
        weights: By which clients are weighed, `examples` or `uniform`.
    """

    def marked(aggregate: Aggregate) -> Aggregate:
        aggregate.averages = weights  # type: ignore[attr-defined]
        return aggregate

    return marked


def weighted_mean(
    state: dict[str, Any], uploads: Uploads, plan: Plan, cohort: Cohort, weights: str = "examples"
) -> dict[str, Any]:
    """Average each layer over the clients that return it (FedRA v1, Eq. 3).

    r_j = sum_{n: M_nj = 1} |D_n| r_j^n / sum_n M_nj |D_n|. A layer that nobody returned keeps its value.

    Each shared tensor is averaged in the same way over the clients that train it, and where clients train some
    coordinates of a tensor, each coordinate over those.
    """
    w = client_weights(cohort, weights)

    def new(place: str, old: Tensor, rows: Tensor, held: Tensor) -> Tensor:
        return mean_or_old(old, rows, uploads.arrived[held], w[held], uploads.coordinates.get(place))

    return {**state, **by_place(state, uploads, plan, new)}


def by_place(
    state: dict[str, Any], uploads: Uploads, plan: Plan, change: Callable[[str, Tensor, Tensor, Tensor], Tensor]
) -> dict[str, Any]:
    """Apply `change(place, old (...), rows (n, ...), trained (N,) bool)` to every tensor.

    Tensors stand under `r` and `shared` as in the state. The n rows are those of the clients that train it, whether
    they arrived or not.
    """
    r = [
        {
            name: change(f"r/{j}/{name}", old, uploads.r[j][name], trained_by(plan, f"r/{j}/{name}"))
            for name, old in r_j.items()
        }
        for j, r_j in enumerate(state["r"])
    ]
    shared = {
        name: change(f"shared/{name}", old, uploads.shared[name], trained_by(plan, f"shared/{name}"))
        for name, old in state["shared"].items()
    }
    return {"r": r, "shared": shared}


def each_returned(
    state: dict[str, Any], uploads: Uploads, plan: Plan, combine: Callable[[Tensor], Tensor]
) -> dict[str, Any]:
    """Return the state with `combine(rows (n, ...)) -> (...)` of the n rows that came back in place of every tensor.

    A tensor that nobody returned keeps its value.

    Where clients train some coordinates of a tensor, those that were trained by the same clients are combined over
    these alone.
    """

    def new(place: str, old: Tensor, rows: Tensor, held: Tensor) -> Tensor:
        came = uploads.arrived[held]
        if not came.any():
            return old.clone()
        if place not in uploads.coordinates:
            return combine(rows[came])
        return _by_pattern(old, rows[came], uploads.coordinates[place][came], combine)

    return {**state, **by_place(state, uploads, plan, new)}


def _by_pattern(old: Tensor, rows: Tensor, trained: Tensor, combine: Callable[[Tensor], Tensor]) -> Tensor:
    """combine(rows of those who trained it) of every coordinate, for all coordinates of the same clients at once."""
    flat, new = rows.flatten(1), old.flatten().clone()
    patterns, which = trained.expand_as(rows).flatten(1).unique(dim=1, return_inverse=True)
    for i, pattern in enumerate(patterns.unbind(1)):
        if pattern.any():
            new[which == i] = combine(flat[pattern][:, which == i])
    return new.view_as(old)


def trimmed(rows: Tensor, cut: int) -> Tensor:
    """The mean of every coordinate without its `cut` smallest and its `cut` largest values. rows (n, ...) -> (...)."""
    if not cut:
        return rows.mean(0)
    return rows.sort(0).values[cut : len(rows) - cut].mean(0)


def by_tensor(
    state: dict[str, Any], uploads: Uploads, plan: Plan, change: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> dict[str, Any]:
    """`by_place` for a change(old, rows, trained) that needs no place."""
    return by_place(state, uploads, plan, lambda _, old, rows, trained: change(old, rows, trained))


def shared_mean(old: dict[str, Tensor], uploads: Uploads, plan: Plan, weights: Tensor) -> dict[str, Tensor]:
    """The mean of every shared tensor over those who train it; weights (N,)."""
    new = {}
    for name, value in old.items():
        held, trained = trained_by(plan, f"shared/{name}"), uploads.coordinates.get(f"shared/{name}")
        new[name] = mean_or_old(value, uploads.shared[name], uploads.arrived[held], weights[held], trained)
    return new
