"""InclusiveFL: the first L_n layers for every client, and momentum distillation (Liu et al., arXiv 2202.08036)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.families.aggregation import Weights, client_weights, mean, shared_mean
from fedbench.families.allocation import prefix
from fedbench.families.deployed_submodel import SizesOf, capacities
from fedbench.families.layerwise import layerwise
from fedbench.families.regularizer import refuse_feddyn
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import HEAD
from fedbench.options import Range, judged
from fedbench.types import Cohort, Plan, Size, Uploads

Update = dict[str, Tensor]

ALIEN = "momentum_distillation", "exact_mean"  # aggregators that mix a size's own layer with those of other sizes


def inclusivefl(
    setup: Setup,
    allocation: Ref = "prefix",
    aggregator: Ref = "momentum_distillation",
    objective: Ref = "cross_entropy",
    own_last_layer: bool = False,
) -> Method:
    """Clients of capacity L_n train S_n = {1, ..., L_n}; layers are shared between sizes as in the paper's
    Figure 2(c).

    own_last_layer: every size keeps its last layer and its classifier out of the sharing, as InclusiveFL's
    own code does; the global model then has those of the largest size seen, and runs all L layers as ever: where
    nobody holds so many, that classifier is shown what it was not trained on, and the largest size's own model is
    another (`evaluation: {sizes: true}` scores it). That code has no working momentum distillation, and neither has
    this option; nor does it go with `exact_mean`, whose additions to frozen weights every size would have.
    """
    if not own_last_layer:
        return layerwise(setup, allocation, aggregator, objective)
    named: Mapping[str, Any] = aggregator if isinstance(aggregator, Mapping) else {"name": aggregator}
    if named["name"] in ALIEN:
        raise UserError(f"inclusivefl: own_last_layer goes without {named['name']}; add `aggregator: weighted_mean`")
    refuse_feddyn(setup, "corrects one global model; with own_last_layer every size has tensors of its own")
    aggregate = _keep_own(setup.component("aggregator", aggregator), named.get("weights", "examples"))
    return layerwise(setup, allocation, aggregate, objective, start=_own_rows, view=_largest, sizes=_occurring(setup))


# --- momentum distillation ----------------------------------------------------------------------------------------


@judged("momentum_distillation")
def momentum_distillation(beta: Annotated[float, Range(0, 1)] = 0.2, weights: Weights = "examples"):
    """Average clients of equal size, mix the larger model's momentum into each size's last layer, then average
    over sizes.

    The update of the last layer of a model of depth l_k becomes (1 - beta) delta + beta * mean, the mean
    taken over the previous round's updates (before mixing) of layers l_k + 1 .. l_{k+1} of the next larger
    model of that round. beta = 0 is the per-layer mean.
    """

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        w = client_weights(cohort, weights)
        _must_be_of_sizes(plan)
        sizes, before = _updates_by_size(state, uploads, plan, w), state["memory"].get("updates", {})
        r, total = state["r"], [0.0] * len(state["r"])
        step: list[Update] = [{name: torch.zeros_like(value) for name, value in r_j.items()} for r_j in r]
        for size, (weight, updates) in sizes.items():
            mixed = updates[:-1] + [_mixed(updates[-1], beta, size, before)]
            for j, update in enumerate(mixed):
                total[j] += weight
                for name, delta in update.items():
                    step[j][name] += weight * delta
        new = [
            {name: value + step[j][name] / total[j] if total[j] else value.clone() for name, value in r[j].items()}
            for j in range(len(r))
        ]
        memory = {"updates": {str(size): updates for size, (_, updates) in sizes.items()} or before}
        return {**state, "r": new, "shared": shared_mean(state["shared"], uploads, plan, w), "memory": memory}

    aggregate.check = _must_be_of_sizes  # type: ignore[attr-defined]  # asked before anything runs
    return aggregate


def _must_be_of_sizes(
    plan: Plan,
    option: str = "aggregator",
    what: str = "momentum_distillation",
    instead: str = "take another aggregator, such as weighted_mean",
) -> None:
    """A size stands for its first layers; with any other allocation "the last layer of a size" means nothing. Its
    update is one of all its tensors: its clients must train and send whatever they hold.

    Raises UserError.
    """
    if not torch.equal(plan.M, prefix(plan.M.sum(1), plan.M.shape[1])):
        raise UserError(
            f"{what} shares layers by size, and needs the allocation prefix; {instead}",
            option=option,
        )
    if not plan.M.any(1).all():
        which = "clients hold none"
    elif not torch.equal(plan.trains, plan.M):
        which = "layers run frozen"
    elif names := (*plan.frozen, *plan.kept):
        which = f"some tensors ({', '.join(names[:2])}{', ...' if names[2:] else ''}) are frozen or stay with clients"
    else:
        return
    raise UserError(f"{what} is about the updates of whole layers, and here {which}; {instead}", option=option)


_must_keep_whole = functools.partial(
    _must_be_of_sizes, option="own_last_layer", what="own_last_layer", instead="leave own_last_layer out"
)


def _updates_by_size(
    state: State, uploads: Uploads, plan: Plan, weights: Tensor
) -> dict[int, tuple[float, list[Update]]]:
    """For each depth l_k that came back: the weight of its clients and their mean update of layers 1 .. l_k."""
    depth = plan.M.sum(1)
    groups: dict[int, tuple[float, list[Update]]] = {}
    for size in sorted(set(depth[uploads.arrived].tolist())):
        group = (depth == size) & uploads.arrived  # (N,)
        updates = []
        for j in range(size):
            rows = group[plan.M[:, j]]  # this group among the holders of layer j
            updates.append(
                {name: mean(uploads.r[j][name][rows], weights[group]) - old for name, old in state["r"][j].items()}
            )
        groups[size] = float(weights[group].sum()), updates
    return groups


def _mixed(delta: Update, beta: float, size: int, before: dict[str, list[Update]]) -> Update:
    """(1 - beta) delta + beta * mean of last round's updates of the layers that the next larger model had beyond
    `size`."""
    larger = [int(other) for other in before if int(other) > size]
    if not larger:
        return delta
    extra = before[str(min(larger))][size:]
    return {
        name: (1 - beta) * value + beta * torch.stack([update[name] for update in extra]).mean(0)
        for name, value in delta.items()
    }


# --- every size's own last layer ----------------------------------------------------------------------------------


def _occurring(setup: Setup) -> SizesOf:
    """The depths that clients may have: no other has a last layer and a classifier of its own."""
    scenario = setup.scenario
    if scenario.fitting:
        return capacities
    given = {depth for low, high in scenario.different("capacities") for depth in range(low, high + 1)}
    return lambda model: [Size(depth) for depth in sorted(given)]


def _keep_own(aggregate, weights: str):
    """Wrap an aggregator: the last layer and the classifier of each size are averaged within that size alone."""

    def own(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        _must_keep_whole(plan)
        depth = plan.M.sum(1)
        new = aggregate(state, *_without_own(uploads, plan), cohort)
        kept = dict(state["memory"].get("own", {}))
        w = client_weights(cohort, weights)
        for size in sorted(set(depth[uploads.arrived].tolist())):
            group = (depth == size) & uploads.arrived
            rows = group[plan.M[:, size - 1]]
            kept[str(size)] = {
                "r": {name: mean(value[rows], w[group]) for name, value in uploads.r[size - 1].items()},
                "shared": {name: mean(value[group], w[group]) for name, value in uploads.shared.items() if _head(name)},
            }
        return {**new, "memory": {**new["memory"], "own": kept}}

    own.check = _must_keep_whole  # type: ignore[attr-defined]  # asked before anything runs
    return own


def _without_own(uploads: Uploads, plan: Plan) -> tuple[Uploads, Plan]:
    """The uploads as if last layers and classifiers had come back unchanged and unheld."""
    depth = plan.M.sum(1)
    M = plan.M.clone()
    for n, size in enumerate(depth.tolist()):
        M[n, size - 1] = False
    r = [{name: value[M[plan.M[:, j], j]] for name, value in uploads.r[j].items()} for j in range(plan.M.shape[1])]
    shared = {name: value[:0] if _head(name) else value for name, value in uploads.shared.items()}
    return Uploads(r, shared, uploads.arrived, uploads.loss, uploads.steps, uploads.seconds), Plan(M, [()] * len(M))


def _own_rows(state: State, plan: Plan, *_: object) -> State:
    """What clients start from: the global state, with their size's own last layer and classifier, one row a client."""
    own, depth = state["memory"].get("own", {}), plan.M.sum(1).tolist()
    r = []
    for j, r_j in enumerate(state["r"]):
        holders = plan.M[:, j].nonzero().flatten().tolist()
        pick = [own[str(depth[n])]["r"] if depth[n] == j + 1 and str(depth[n]) in own else r_j for n in holders]
        r.append({name: torch.stack([p[name] for p in pick]) for name in r_j} if pick else r_j)
    shared = dict(state["shared"])
    for name in filter(_head, shared):
        rows = [own[str(d)]["shared"][name] if str(d) in own else state["shared"][name] for d in depth]
        shared[name] = torch.stack(rows) if rows else shared[name]
    return {**state, "r": r, "shared": shared}


def _largest(state: State) -> State:
    """The global model: shared layers, and the last layer and classifier of the largest size that ever came back."""
    own: dict[str, Any] = state["memory"].get("own", {})
    if not own:
        return state
    size = max(map(int, own))
    r = list(state["r"])
    r[size - 1] = own[str(size)]["r"]
    return {**state, "r": r, "shared": {**state["shared"], **own[str(size)]["shared"]}}


def _head(name: str) -> bool:
    return name.startswith(f"{HEAD}.")


# --- registration -------------------------------------------------------------------------------------------------


@hookimpl
def fedbench_register_methods(register):
    # The FedRA authors' code has momentum distillation, but never calls it.
    register(
        "inclusivefl",
        inclusivefl,
        ignores=["ranks", "widths"],
        look=8,
        profiles={"reference": {"aggregator": "weighted_mean"}},
        family="Depth",
        paper="Liu et al., InclusiveFL, KDD 2022, arXiv 2202.08036",
    )


@hookimpl
def fedbench_register_aggregators(register):
    register("momentum_distillation", momentum_distillation, ignores=["capacities", "ranks", "widths"])
