"""Family 1, depth-allocated tuning: each client tunes the adapters of some layers; the server averages layer by
layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Generator, Tensor

from fedbench.families import allocation as alloc
from fedbench.families.regularizer import first_books, pull_of, server_step
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models import cost
from fedbench.models.adapter import fold
from fedbench.models.backbone import Blocks, in_layers, load
from fedbench.models.globalmodel import GlobalModel
from fedbench.types import Cohort, Exit, Job, Plan, Report

HEAD = "head"
ExitsOf = Callable[[int], list[Exit]]


def head_at_end(depth: int) -> list[Exit]:
    """One classifier, after the last layer a client holds."""
    return [Exit(depth, HEAD)]


def full_depth(model: Blocks, state: State) -> GlobalModel:
    """The global model: all L layers, then the head."""
    return GlobalModel(model, range(model.num_layers), head_at_end(model.num_layers))


def unchanged(state: State, plan: Plan | None = None) -> State:
    """The state as it is."""
    return state


def layerwise(
    setup: Setup,
    allocation: Ref = "random",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
    *,
    adapt: bool = True,
    depth_of: Callable[[int], int | None] = lambda L_n: L_n,
    exits_of: ExitsOf = head_at_end,
    start: Callable[[State, Plan], State] = unchanged,
    view: Callable[[State], State] = unchanged,
    predict: Callable[[Blocks, State], Predict] = full_depth,
) -> Method:
    """A depth-allocated method from its parts; the defaults are FedRA.

    allocation, aggregator, objective: references to components, or the functions themselves · adapt: False
    trains classifiers alone · depth_of(L_n): how many layers a client of capacity L_n is given, None if it
    takes no part · exits_of(depth): its classifiers · start(state, plan): what clients start from ·
    view(state): what the global model is read from · predict(model, state): how the model, loaded with that
    view, answers.
    """
    model = _trainable(setup, adapt, exits_of)
    L = model.num_layers
    allocate = setup.component("allocation", allocation)
    aggregate = setup.component("aggregator", aggregator)
    loss = setup.component("objective", objective)
    regularizer, registered = setup.train.get("regularizer"), len(setup.scenario.clients)

    @functools.cache
    def price(depth: int) -> cost.ClientCost:
        return cost.measure(model, range(depth), exits_of(depth), loss, setup.train, setup.image_size)

    @functools.cache
    def layer_flops() -> Tensor:
        return cost.layer_costs(model, setup.image_size)

    def init(generator: Generator) -> State:
        model.draw(generator)
        return {
            "r": [_values(model.r(j)) for j in range(L)],
            "shared": _values(model.shared()),
            "scores": torch.zeros(L, dtype=torch.float64),
            "history": torch.zeros(L, dtype=torch.int64),
            "memory": {},
            **first_books(regularizer),
        }

    def round(state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        depths = [depth_of(L_n) for L_n in cohort.capacities.tolist()]
        cohort = cohort.only([n for n, depth in enumerate(depths) if depth is not None])
        L_n = torch.tensor([depth for depth in depths if depth is not None], dtype=torch.int64)  # (N,)
        M = alloc.draw(allocate, L_n, L, t, cohort.ids, state, generator, layer_flops)  # (N, L) bool
        plan = Plan(M, [exits_of(depth) for depth in M.sum(1).tolist()])
        pull = pull_of(regularizer, state, plan, cohort.ids)
        job = Job(t, setup.seed, setup.train["optimizer"], setup.train["clip"], loss, pull)
        begun = start(state, plan)
        up = setup.engine(model, begun, plan, cohort, job)
        report = Report(plan, cohort, up, [price(depth) for depth in M.sum(1).tolist()])
        if not up.arrived.any():
            return state, report
        given, books = server_step(regularizer, registered, state, begun, up, plan, cohort.ids)
        new = {**aggregate(state, given, plan, cohort), **books}
        return _remember(state, new, M[up.arrived]), report

    def predictor(state: State, client: int | None = None) -> Predict:
        seen = view(state)
        for j in range(L):
            load(model.r(j), seen["r"][j])
        load(model.shared(), seen["shared"])
        if setup.fold:
            fold(model)
        return predict(model, seen)

    def client_cost(L_n: int, t: int) -> cost.ClientCost | None:
        depth = depth_of(L_n)
        return None if depth is None else price(depth)

    return Method(init, round, predictor, client_cost)


def _trainable(setup: Setup, adapt: bool, exits_of: ExitsOf) -> Blocks:
    """The backbone with its adapters and every classifier that some depth has."""
    model = in_layers(setup.backbone)
    if adapt:
        setup.adapter(model)
    names = {exit.classifier for depth in range(1, model.num_layers + 1) for exit in exits_of(depth)}
    for name in sorted(names | {HEAD}):
        model.add_classifier(name, setup.num_classes)
    return model.to(setup.device).eval()


def _values(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def _remember(old: State, new: State, returned: Tensor) -> State:
    """Count the updates each layer has received, and keep the norm of its last one; returned (n, L) bool, rows
    of M that arrived."""
    count = returned.sum(0)
    moved = [
        sum((((r_j[name] - before[name]).double() ** 2).sum() for name in r_j), torch.zeros(())).sqrt()
        for r_j, before in zip(new["r"], old["r"], strict=True)
    ]
    scores = torch.where(count > 0, torch.stack([norm.double().cpu() for norm in moved]), old["scores"])
    return {**new, "history": old["history"] + count, "scores": scores}
