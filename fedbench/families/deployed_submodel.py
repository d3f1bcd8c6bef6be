"""Sizes that a method offers, and the model that a client of one size is handed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench import seeding
from fedbench.families.allocation import nothing_known
from fedbench.families.personal_params import FreshParams, PersonalParams
from fedbench.method import Predict, Setup, State
from fedbench.models.adapter import fold
from fedbench.models.backbone import Blocks, load
from fedbench.models.cost import holding_of
from fedbench.models.counting import to_run
from fedbench.models.globalmodel import GlobalModel
from fedbench.models.lowrank import FROZEN, Terms, load_additions, rank_of, scaled
from fedbench.models.param_paths import places
from fedbench.types import GLOBAL, Cohort, Exit, Plan, Size

SizesOf = Callable[[Blocks], Sequence[Size]]


def depths(depth_of: Callable[[int], int | None]) -> SizesOf:
    """Return every number of layers that `depth_of(L_n)` gives some L_n.

    It is named by that number where a client of that capacity is given it, else by the largest L_n that is.
    """

    def of(model: Blocks) -> list[Size]:
        given: dict[int, int] = {}  # depth -> L_n
        for L_n in range(1, model.num_layers + 1):
            depth = depth_of(L_n)
            if depth is not None and given.get(depth, 0) < depth:
                given[depth] = L_n
        return [Size(given[depth]) for depth in sorted(given)]

    return of


def capacities(model: Blocks) -> list[Size]:
    """Every number of layers, whatever becomes of it."""
    return [Size(L_n) for L_n in range(1, model.num_layers + 1)]


def ranks(model: Blocks) -> list[Size]:
    """All layers, with powers of two of the adapters' rank-one terms, and with all R of them."""
    R = rank_of(model)
    powers = [2**k for k in range(R.bit_length()) if 2**k < R]
    return [Size(model.num_layers, rank=r) for r in [*powers, R]]


# (model, state, layers held, their classifiers) -> how such a client's model answers
SubmodelAnswer = Callable[[Blocks, State, Sequence[int], Sequence[Exit]], Predict]


def deepest(model: Blocks, state: State, layers: Sequence[int], exits: Sequence[Exit]) -> GlobalModel:
    """The layers held, then the classifier at their end."""
    return GlobalModel(model, layers, [max(exits, key=lambda exit: exit.depth)])


@dataclass(frozen=True, eq=False)
class DeployedSubmodel:
    """Return what a client of a size would start the next round with, if it were the only one.

    It has the layers that the method's allocation gives it (FedRA: a random subset, drawn from the seed), the rank-one
    terms that it holds, and the classifiers of its depth.

    Attributes:
        plan, start: as the method makes them.
        answer: how its model answers.
    """

    setup: Setup
    model: Blocks
    plan: Callable[..., tuple[Plan, Cohort]]
    start: Callable[..., State]
    fresh: FreshParams
    own: PersonalParams | None
    answer: SubmodelAnswer

    def at(self, state: State, size: Size, client: int | None = None) -> Predict:
        """The model of `size`; client: whose own tensors it has, where clients keep some.

        Valid until the method's next call of `round`, `predictor` or `at`.
        """
        plan, cohort = self._plan(state, size, GLOBAL if client is None else client)
        begun = self.fresh.given(self.start(state, plan, cohort, self._t), plan, cohort, self._t)
        if self.own:
            begun = self.own.given(begun, self.own.read(state, cohort), plan)
        self._load(state, begun, plan)
        load_additions(self.model, state.get(FROZEN))
        scale = None if plan.scales is None else float(plan.scales[0])
        if self.setup.fold:
            with scaled(self.model, scale):
                fold(self.model)
        predict = self.answer(self.model, state, plan.M[0].nonzero().flatten().tolist(), plan.exits[0])
        return predict if scale is None else functools.partial(_at_scale, self.model, scale, predict)

    def _load(self, state: State, begun: State, plan: Plan) -> None:
        """Into the model: what the client is given, 0 for the terms that it does not hold."""
        given, whole, terms = dict(places(begun)), dict(places(state)), Terms(self.model, plan)
        parameters, values = self.model.trained(), {}
        for place, parameter in parameters.items():
            value = given[place]
            if value.dim() > parameter.dim():  # a row for each that holds it, which may be nobody
                value = value[0] if len(value) else whole[place]
            held = terms.held(place, [0], value.dim())
            values[place] = value if held is None else value * held[0]
        load(parameters, values)

    def running(self, size: Size) -> int | None:
        """Return the bytes that a device needs to classify one image with the model of `size`.

        The plan of the first round says which layers it has. None: the method has no model of so few layers.
        """
        L = self.model.num_layers
        with torch.device("cpu"):  # also where the model is but a shape
            plan, _ = self._plan({**nothing_known(L), "memory": {}}, size, GLOBAL)
        if not len(plan.M):
            return None
        holding = holding_of(plan, 0)
        if holding.depth > size.capacity:
            return None
        rank = max(holding.ranks, default=None) if holding.ranks else None
        return to_run(self.model, holding.depth, holding.exits, self.setup.image_size, rank)

    @property
    def _t(self) -> int:
        """The round after the last one, counted from 0."""
        return int(self.setup.train["rounds"])

    def _plan(self, state: State, size: Size, client: int) -> tuple[Plan, Cohort]:
        ones = torch.ones(1)
        r_n = None if size.rank is None else torch.tensor([size.rank])
        one = Cohort([client], torch.tensor([size.capacity]), ones, ones, lambda n: iter(()), ranks=r_n)
        return self.plan(state, self._t, one, seeding.generator(self.setup.seed, self._t, use="handed"))


def _at_scale(model: Blocks, scale: float, predict: Predict, x: Tensor) -> Tensor | Mapping[str, Tensor]:
    with scaled(model, scale):
        return predict(x)
