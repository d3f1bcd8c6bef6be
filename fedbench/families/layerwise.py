"""Depth-allocated tuning: each client tunes the adapters of some layers; the server averages layer by
layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedbench.families import allocation as alloc
from fedbench.families.regularizer import first_books, pull_of, server_step
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models import cost
from fedbench.models.adapter import fold
from fedbench.models.backbone import HEAD, Blocks, in_layers, load
from fedbench.models.globalmodel import GlobalModel
from fedbench.types import ClientCost, Cohort, Exit, Job, Objective, Plan, Pull, Report

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
    made = Layerwise(
        setup,
        model=_trainable(setup, adapt, exits_of),
        allocate=setup.component("allocation", allocation),
        aggregate=setup.component("aggregator", aggregator),
        objective=setup.component("objective", objective),
        depth_of=depth_of,
        exits_of=exits_of,
        start=start,
        view=view,
        predict=predict,
    )
    return Method(made.init, made.round, made.predictor, made.cost)


@dataclass(frozen=True, eq=False)
class Layerwise:
    """The method itself, of the parts that `layerwise` names: r_j of every layer and what is shared are the state."""

    setup: Setup
    model: Blocks
    allocate: Callable[..., Tensor]
    aggregate: Callable[..., State]
    objective: Objective
    depth_of: Callable[[int], int | None]
    exits_of: ExitsOf
    start: Callable[[State, Plan], State]
    view: Callable[[State], State]
    predict: Callable[[Blocks, State], Predict]

    def init(self, generator: Generator) -> State:
        L = self.model.num_layers
        self.model.draw(generator)
        return {
            "r": [_values(self.model.r(j)) for j in range(L)],
            "shared": _values(self.model.shared()),
            "scores": torch.zeros(L, dtype=torch.float64),
            "history": torch.zeros(L, dtype=torch.int64),
            "memory": {},
            **first_books(self.setup.train.get("regularizer")),
        }

    def round(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        regularizer, registered = self.setup.train.get("regularizer"), len(self.setup.scenario.clients)
        plan, cohort = self.plan(state, t, cohort, generator)
        job = self.job(t, pull_of(regularizer, state, plan, cohort.ids))
        begun = self.start(state, plan)
        up = self.setup.engine(self.model, begun, plan, cohort, job)
        report = Report(plan, cohort, up, [self.price(depth) for depth in plan.M.sum(1).tolist()])
        if not up.arrived.any():
            return state, report
        given, books = server_step(regularizer, registered, state, begun, up, plan, cohort.ids)
        new = {**self.aggregate(state, given, plan, cohort), **books}
        return _remember(state, new, plan.M[up.arrived]), report

    def plan(self, state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[Plan, Cohort]:
        """M and the exits of those who take part, and them."""
        depths = [self.depth_of(L_n) for L_n in cohort.capacities.tolist()]
        cohort = cohort.only([n for n, depth in enumerate(depths) if depth is not None])
        L_n = torch.tensor([depth for depth in depths if depth is not None], dtype=torch.int64)  # (N,)
        L, costs = self.model.num_layers, lambda: self.layer_costs
        M = alloc.draw(self.allocate, L_n, L, t, cohort.ids, state, generator, costs)  # (N, L) bool
        return Plan(M, [self.exits_of(depth) for depth in M.sum(1).tolist()]), cohort

    def job(self, t: int, pull: Pull | None) -> Job:
        """How a client trains in round t."""
        train = self.setup.train
        return Job(t, self.setup.seed, train["optimizer"], train["clip"], self.objective, pull)

    def predictor(self, state: State, client: int | None = None) -> Predict:
        seen = self.view(state)
        for j in range(self.model.num_layers):
            load(self.model.r(j), seen["r"][j])
        load(self.model.shared(), seen["shared"])
        if self.setup.fold:
            fold(self.model)
        return self.predict(self.model, seen)

    def cost(self, L_n: int, t: int) -> ClientCost | None:
        depth = self.depth_of(L_n)
        return None if depth is None else self.price(depth)

    @functools.cached_property
    def price(self) -> Callable[[int], ClientCost]:
        """What a client of that depth pays, each measured once."""

        def of_depth(depth: int) -> ClientCost:
            exits, setup = self.exits_of(depth), self.setup
            return cost.measure(self.model, range(depth), exits, self.objective, setup.train, setup.image_size)

        return functools.cache(of_depth)

    @functools.cached_property
    def layer_costs(self) -> Tensor:
        """(L,) float64, FLOPs of one image through each layer, measured where an allocation asks for it."""
        return cost.layer_costs(self.model, self.setup.image_size)


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
