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
from fedbench.models.lowrank import FROZEN
from fedbench.models.param_paths import matches, trained_layers
from fedbench.types import Plan, Report, Uploads

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
    model: Blocks, before: Mapping[str, Any], after: Mapping[str, Any], report: Report, weights: str | None
) -> list[Effect]:
    """Of every layer that has adapters.

    Computed in float64, of what is sent: what clients keep has no part in it. A method whose state has no `r` with the
    uploads' names has none.

    Args:
        model: The backbone with its adapters.
        before: The state before the round.
        after: The state after it.
        report: Of the round.
        weights: Those of the products' mean, `examples` or `uniform`, or None where a method weighs clients in another
            way: nothing is known of its products then.
    """
    plan, up = report.plan, report.uploads
    w = client_weights(report.cohort, weights) if weights else None
    trains = trained_layers(plan, up.r)
    holders: dict[int, int] = {}
    measured = []
    for j, (old, new) in enumerate(_by_layer(before, after, up)):
        sent = {name: value for name, value in up.r[j].items() if not matches(f"r/{j}/{name}", plan.kept)}
        if not sent:
            continue
        who = trains[:, j]
        came = up.arrived[who]
        rows = {name: _rows(value, old[name], came) for name, value in sent.items()}  # (n, ...)
        within = {name: up.coordinates[place][came] for name in rows if (place := f"r/{j}/{name}") in up.coordinates}
        sums = _sums(plan, j, who.nonzero().flatten()[came], before, after)
        holders[j] = int(came.sum())
        theirs = None if w is None else w[who][came]
        measured.append(_measures(model.blocks[j], old, new, rows, within, theirs, sums))
    norms = torch.stack(measured).tolist() if measured else []  # one wait for a GPU, not one a layer
    return [Effect(j, n, *four) for (j, n), four in zip(holders.items(), norms, strict=True)]


def _rows(sent: Tensor, old: Tensor, came: Tensor) -> Tensor:
    """(n, ...) float64: a tensor of the clients that returned its layer; one that nobody trains is everybody's."""
    if len(sent) == len(came):
        return sent[came].double()
    return old.double().expand(int(came.sum()), *old.shape)


@dataclass(frozen=True)
class _Sums:
    """What a plan and the states around its round say of the products of a layer's factors.

    Attributes:
        terms: (n, R) bool, which rank-one terms the clients hold, None for all.
        scales: (n,), what they multiply their products with in place of alpha / r.
        added: by module, what the server has added to the frozen weight.
    """

    terms: Tensor | None
    scales: Tensor | None
    added: Mapping[str, Tensor]


def _sums(plan: Plan, j: int, who: Tensor, before: Mapping[str, Any], after: Mapping[str, Any]) -> _Sums | None:
    """Of layer j and the clients at positions `who` (n,); None where it says nothing of the kind."""
    old, new = (of if isinstance(of := state.get(FROZEN), Mapping) else {} for state in (before, after))
    added = {
        place.removeprefix(f"r/{j}/"): value.double() - (old[place].double() if place in old else 0.0)
        for place, value in new.items()
        if place.startswith(f"r/{j}/")
    }
    if plan.terms is None and plan.trained_terms is None and plan.scales is None and not added:
        return None
    terms = None if plan.terms is None else plan.terms[who, j]
    return _Sums(terms, None if plan.scales is None else plan.scales[who], added)


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
    layer: nn.Module,
    old: Mapping[str, Tensor],
    new: Mapping[str, Tensor],
    rows: Mapping[str, Tensor],
    within: Mapping[str, Tensor],
    weights: Tensor | None,
    sums: _Sums | None,
) -> Tensor:
    """Return (4,): the norms of the change and of the clients' changes, the aggregation error, the products' norm.

    `within` says which coordinates of their rows clients have trained, where not all; `weights` is None where nobody
    knows them. Clients that have scales of their own do not start from the global adapters, so that their changes are
    unknown.
    """
    moved = norms({name: (new[name].double() - old[name].double())[None] for name in rows})
    if not len(next(iter(rows.values()))):
        return torch.stack([moved[0], *moved.new_full((3,), NAN)])
    theirs = {name: value - old[name].double() for name, value in rows.items()}
    theirs |= {name: theirs[name] * mask for name, mask in within.items()}
    products = moved.new_full((2,), NAN)
    if weights is not None:
        products = _of_products(layer, rows, weights) if sums is None else _of_sums(layer, new, rows, weights, sums)
    changed = norms(theirs).mean() if sums is None or sums.scales is None else moved.new_tensor(NAN)
    return torch.stack([moved[0], changed, *products])


def norms(rows: Mapping[str, Tensor]) -> Tensor:
    """(n,): the Frobenius norm of every row over all tensors (n, ...)."""
    found: Tensor = torch.cat([value.flatten(1) for value in rows.values()], 1).norm(dim=1)
    return found


def _of_products(layer: nn.Module, rows: Mapping[str, Tensor], weights: Tensor) -> Tensor:
    """Return (2,): ||mean(B_n A_n) - mean(B_n) mean(A_n)||_F and ||mean(B_n A_n)||_F.

    They are added in quadrature over the layer's low-rank adapters; NaN where there are none.
    """
    found = []
    for B, A in factors(layer, rows):
        # mean(B_n A_n) - mean(B) mean(A) is the mean product of what each differs by: no cancellation.
        centred = norm_of_mean(B - mean(B, weights), A - mean(A, weights), weights)
        found.append(torch.stack([centred, norm_of_mean(B, A, weights)]))
    return torch.stack(found).norm(dim=0) if found else next(iter(rows.values())).new_full((2,), NAN)


def _of_sums(
    layer: nn.Module, new: Mapping[str, Tensor], rows: Mapping[str, Tensor], weights: Tensor, sums: _Sums
) -> Tensor:
    """Return the same where there is no mean of factors.

    In place of the product of the means stands what the adapted weight has gained: B A of the new state, and what was
    added to the frozen weight.
    """
    found = []
    w = weights / weights.sum()
    made = factors(layer, {name: new[name].double()[None] for name in rows})
    for (path, *_), (B, A), (B_new, A_new) in zip(
        _low_rank(layer, rows), factors(layer, rows, sums.scales), made, strict=True
    ):
        if sums.terms is not None:
            B = B * sums.terms[:, None].to(B.device)
        product = torch.einsum("n,nor,nri->oi", w.to(B.device, B.dtype), B, A)
        gained = (B_new @ A_new)[0]
        if path in sums.added:
            gained = gained + sums.added[path].flatten(1)
        found.append(torch.stack([(product - gained).norm(), product.norm()]))
    return torch.stack(found).norm(dim=0) if found else next(iter(rows.values())).new_full((2,), NAN)


def factors(
    layer: nn.Module, rows: Mapping[str, Tensor], scales: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (alpha / r) B_n (n, out, r) and A_n (n, r, in) of the clients' rows, for every low-rank adapter there.

    A convolution's kernel counts as part of `in`. `scales` (n,) stand in place of alpha / r.
    """
    for _, own, A_name, B_name in _low_rank(layer, rows):
        B, A = rows[B_name].flatten(2), rows[A_name].flatten(2)
        scaling = own.alpha / own.rank if scales is None else scales[:, None, None].to(B.device, B.dtype)
        yield scaling * B, A


def _low_rank(layer: nn.Module, rows: Mapping[str, Tensor]) -> Iterator[tuple[str, LowRank, str, str]]:
    """Yield the low-rank adapters in the layer of whose factors there are rows.

    Each comes with its module's name, and the names of A and B among the layer's own parameters.
    """
    names = {id(parameter): name for name, parameter in layer.named_parameters()}
    for path, module in layer.named_modules():
        low_rank: Callable[[], LowRank] | None = getattr(module, "low_rank", None)
        if low_rank is None:
            continue
        own = low_rank()
        A, B = names.get(id(own.A)), names.get(id(own.B))
        if A in rows and B in rows:
            yield path, own, str(A), str(B)


def norm_of_mean(B: Tensor, A: Tensor, weights: Tensor) -> Tensor:
    """Return ||sum_n w_n B_n A_n / sum_n w_n||_F for B (n, out, r) and A (n, r, in).

    The (out, in) matrix is not made where the n r x n r products of the stacked factors are smaller.
    """
    w = (weights / weights.sum()).to(B.device, B.dtype)
    left = (w[:, None, None] * B).transpose(0, 1).flatten(1)  # (out, n r)
    right = A.flatten(0, 1)  # (n r, in)
    if len(right) > min(len(left), right.shape[1]):
        norm: Tensor = (left @ right).norm()
        return norm
    return ((left.mT @ left) * (right @ right.mT)).sum().clamp(min=0).sqrt()
