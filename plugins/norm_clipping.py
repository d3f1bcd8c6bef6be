"""Norm clipping (Sun et al., 2019, arXiv 1911.07963, Section 4): nobody moves the model further than a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.families import aggregation
from fedbench.types import Cohort, Plan, Uploads


def norm_clipping(max_norm: float | None = None, weights: str = "examples"):
    """The per-layer mean, after the update of every client, what it sends minus the global value, is scaled down to a
    norm of at most `max_norm`, over all tensors that it holds.

    max_norm: null takes the median of the norms that came back in the round. weights: of the mean, by number of
    `examples`, as FedAvg in the paper, or `uniform`.
    """
    if max_norm is not None and (isinstance(max_norm, bool) or not isinstance(max_norm, int | float) or max_norm <= 0):
        raise UserError(f"norm_clipping: max_norm is a number above 0, or null, not {max_norm!r}")
    if weights not in aggregation.WEIGHTS:
        raise UserError(f"norm_clipping: weights is {' or '.join(aggregation.WEIGHTS)}, not {weights!r}")

    def aggregate(state: dict[str, Any], uploads: Uploads, plan: Plan, cohort: Cohort) -> dict[str, Any]:
        if uploads.arrived.any():
            uploads = clipped(state, uploads, plan, max_norm)
        return aggregation.weighted_mean(state, uploads, plan, cohort, weights)

    return aggregate


def clipped(state: dict[str, Any], uploads: Uploads, plan: Plan, max_norm: float | None) -> Uploads:
    """The uploads with no update longer than max_norm, or than the median of those that arrived."""
    norms = update_norms(state, uploads, plan)
    came = norms[uploads.arrived]
    limit = aggregation.trimmed(came, (len(came) - 1) // 2) if max_norm is None else max_norm
    factors = torch.where(norms > limit, limit / norms, 1.0)  # (N,)

    def shortened(old: Tensor, rows: Tensor, held: Tensor) -> Tensor:
        factor = factors[held].to(rows.device, rows.dtype).reshape(-1, *[1] * old.dim())
        return torch.where(factor < 1, old + factor * (rows - old), rows)

    return replace(uploads, **aggregation.by_tensor(state, uploads, plan, shortened))


def update_norms(state: dict[str, Any], uploads: Uploads, plan: Plan) -> Tensor:
    """(N,) float64: the norm of every client's update over all tensors that it holds."""

    def squares(old: Tensor, rows: Tensor, held: Tensor) -> Tensor:
        own = (rows - old).double().square()[:, None].flatten(1).sum(1)
        return torch.zeros(len(held), dtype=torch.float64).masked_scatter(held, own.cpu())

    found = aggregation.by_tensor(state, uploads, plan, squares)
    return sum(each for part in (*found["r"], found["shared"]) for each in part.values()).sqrt()


@hookimpl
def fedbench_register_aggregators(register):
    register("norm_clipping", norm_clipping, profiles={"reference": {"weights": "uniform"}})
