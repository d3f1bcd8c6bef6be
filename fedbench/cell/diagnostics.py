"""What a round did to every layer: who returned it, how far it moved, and what averaging its factors lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.families.aggregation import client_weights, mean
from fedbench.models.adapter import LowRank
from fedbench.models.backbone import Blocks
from fedbench.types import Report, Uploads

NAN = float("nan")


@dataclass(frozen=True)
class Effect:
    """What a round did to one layer: how many clients returned it, and the norms that layers.parquet has."""

    layer: int
    holders: int
    update_norm: float
    client_update_norm: float
    aggregation_error: float
    product_norm: float


@torch.no_grad()
def effects(
    model: Blocks, before: Mapping[str, Any], after: Mapping[str, Any], report: Report, weights: str
) -> list[Effect]:
    """Of every layer that has adapters.

    before, after: the states around the round · weights: those of the products' mean, `examples` or `uniform`.
    Computed in float64. A method whose state has no `r` with the uploads' names has none.
    """
    up, w = report.uploads, client_weights(report.cohort, weights)
    holders: dict[int, int] = {}
    measured = []
    for j, (old, new) in enumerate(_by_layer(before, after, up)):
        if not old:
            continue
        held = report.plan.M[:, j]
        came = up.arrived[held]
        rows = {name: value[came].double() for name, value in up.r[j].items()}  # (n, ...)
        holders[j] = int(came.sum())
        measured.append(_measures(model.blocks[j], old, new, rows, w[held][came]))
    norms = torch.stack(measured).tolist() if measured else []  # one wait for a GPU, not one a layer
    return [Effect(j, n, *four) for (j, n), four in zip(holders.items(), norms, strict=True)]


def _by_layer(
    before: Mapping[str, Any], after: Mapping[str, Any], up: Uploads
) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """(old r_j, new r_j) of every layer; none where a method's state has no such thing."""
    wanted = [{name: rows.shape[1:] for name, rows in r_j.items()} for r_j in up.r]
    if not _shapes(before.get("r")) == _shapes(after.get("r")) == wanted:
        return []
    return list(zip(before["r"], after["r"], strict=True))


def _shapes(r: Any) -> list[dict[str, torch.Size | None]] | None:
    """The shapes of what could be the r of a state; None where it is something else."""
    if not isinstance(r, list) or not all(isinstance(r_j, dict) for r_j in r):
        return None
    return [{name: getattr(value, "shape", None) for name, value in r_j.items()} for r_j in r]


def _measures(
    layer: nn.Module, old: Mapping[str, Tensor], new: Mapping[str, Tensor], rows: Mapping[str, Tensor], weights: Tensor
) -> Tensor:
    """(4,): the norms of the change and of the clients' changes, the aggregation error, the products' norm."""
    moved = norms({name: (new[name].double() - value.double())[None] for name, value in old.items()})
    if not len(weights):
        return torch.stack([moved[0], *moved.new_full((3,), NAN)])
    theirs = norms({name: rows[name] - value.double() for name, value in old.items()})
    return torch.stack([moved[0], theirs.mean(), *_of_products(layer, rows, weights)])


def norms(rows: Mapping[str, Tensor]) -> Tensor:
    """(n,): the Frobenius norm of every row over all tensors (n, ...)."""
    return torch.cat([value.flatten(1) for value in rows.values()], 1).norm(dim=1)


def _of_products(layer: nn.Module, rows: Mapping[str, Tensor], weights: Tensor) -> Tensor:
    """(2,): ||mean(B_n A_n) - mean(B_n) mean(A_n)||_F and ||mean(B_n A_n)||_F, in quadrature over the layer's
    low-rank adapters; NaN where there are none."""
    found = []
    for B, A in factors(layer, rows):
        # mean(B_n A_n) - mean(B) mean(A) is the mean product of what each differs by: no cancellation.
        centred = norm_of_mean(B - mean(B, weights), A - mean(A, weights), weights)
        found.append(torch.stack([centred, norm_of_mean(B, A, weights)]))
    return torch.stack(found).norm(dim=0) if found else next(iter(rows.values())).new_full((2,), NAN)


def factors(layer: nn.Module, rows: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Of every adapter in the layer that has `low_rank`: (alpha / r) B_n (n, out, r) and A_n (n, r, in) of the clients'
    rows; a convolution's kernel counts as part of `in`."""
    names = {id(parameter): name for name, parameter in layer.named_parameters()}
    for module in layer.modules():
        low_rank: Callable[[], LowRank] | None = getattr(module, "low_rank", None)
        if low_rank:
            own = low_rank()
            if id(own.A) in names and id(own.B) in names:
                B, A = rows[names[id(own.B)]], rows[names[id(own.A)]]
                yield own.alpha / own.rank * B.flatten(2), A.flatten(2)


def norm_of_mean(B: Tensor, A: Tensor, weights: Tensor) -> Tensor:
    """||sum_n w_n B_n A_n / sum_n w_n||_F for B (n, out, r) and A (n, r, in), without the (out, in) matrix where the
    n r x n r products of the stacked factors are smaller."""
    share = (weights / weights.sum()).to(B.device, B.dtype)
    left = (share[:, None, None] * B).transpose(0, 1).flatten(1)  # (out, n r)
    right = A.flatten(0, 1)  # (n r, in)
    if len(right) > min(len(left), right.shape[1]):
        return (left @ right).norm()
    return ((left.mT @ left) * (right @ right.mT)).sum().clamp(min=0).sqrt()
