"""Checks of aggregators that only many clients show: whose weight goes with whose row, and with one of them lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.method import State
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import pairs
from fedbench.models.places import by_layer, places, trained_by
from fedbench.testing.world import close, cohort_of, expect
from fedbench.types import Cohort, Plan, Uploads

CAPACITIES = [2, 1, 2, 2, 1, 2]
EXAMPLES = [5, 3, 2, 7, 4, 6]
ORDER = [3, 5, 1, 0, 4, 2]  # how they stand the second time
LOST = 2
ALIGNED = (
    "of a tensor `held = trained_by(plan, place)` has sent rows, in that order, and `came = uploads.arrived[held]` are "
    "those to take: `rows[came]` go with `weights[held][came]`"
)

Aggregate = Callable[..., State]
Rows = Mapping[str, Tensor]  # of every tensor, by place, one row for each of the clients


@dataclass(frozen=True)
class Crowd:
    """Six clients by a plan; what each sends does not depend on where it stands."""

    model: Blocks
    plan: Plan

    def sent(self, state: State, seed: int, far: float = 0.1) -> Rows:
        """(6, ...) of each client what the state has, and random numbers added, `far` at a time; clients that take no
        step are at 0. Of rows that have nothing in common a solver, as some aggregators have one, may make a multiple
        of rounding errors."""
        chance = torch.Generator().manual_seed(200 + seed)
        now = {place: value for place, value in places(state) if place in self.model.trained()}
        return {place: value + far * torch.randn(6, *value.shape, generator=chance) for place, value in now.items()}

    def round(
        self, aggregate: Aggregate, state: State, sent: Rows, lost: int | None, order: Sequence[int] = range(6)
    ) -> State:
        """The next state where clients stand in that order; lost: the client whose work does not come back."""
        order = list(order)
        plan = Plan(self.plan.M[order], [self.plan.exits[n] for n in order])
        rows = {place: value[order][trained_by(plan, place)] for place, value in sent.items()}
        arrived = torch.tensor([n != lost for n in order])
        loss, steps, seconds = (torch.ones(6, dtype=torch.float64) for _ in range(3))
        of = by_layer(rows, self.model.num_layers)
        return aggregate(state, Uploads(of["r"], of["shared"], arrived, loss, steps, seconds), plan, _cohort(order))


def _cohort(order: Sequence[int]) -> Cohort:
    return cohort_of([CAPACITIES[n] for n in order], [EXAMPLES[n] for n in order], ids=list(order))


def check_crowd(aggregate: Aggregate, start: State, crowd: Crowd) -> None:
    """The next state does not depend on the order in which clients stand, nor on the weight of one that is lost; what
    is remembered of clients goes by their numbers."""
    told = f"with six clients, of which client {LOST} is lost,"
    one, other = _both(aggregate, start, crowd, 0)
    differs = _differs(crowd.model, one, other)
    expect(
        not differs,
        f"{told} the next state depends on the order in which they stand (`{differs}`): does a row meet the weight of "
        f"another client? {ALIGNED}",
    )
    middle = crowd.round(aggregate, start, crowd.sent(start, 1), None)
    one, other = _both(aggregate, middle, crowd, 2)
    differs = _differs(crowd.model, one, other)
    expect(
        not differs,
        f"{told} the second round depends on the order in which they stand (`{differs}`), and the first does not: what "
        'state["memory"] holds of a client must go by its number, `cohort.ids[n]`, not by its place n',
    )
    _check_denominator(aggregate, start, crowd)


def _both(aggregate: Aggregate, state: State, crowd: Crowd, seed: int) -> list[State]:
    """The next states, for either order."""
    return [crowd.round(aggregate, state, crowd.sent(state, seed), LOST, order) for order in (range(6), ORDER)]


def _check_denominator(aggregate: Aggregate, start: State, crowd: Crowd) -> None:
    """A tensor that stays where all send what they were given stays where one of them is lost."""
    same_rows = crowd.sent(start, 0, far=0.0)
    whole, without = (dict(places(crowd.round(aggregate, start, same_rows, lost))) for lost in (None, LOST))
    for place, value in places(start):
        expect(
            not close(value, whole[place]) or close(value, without[place]),
            f"clients send back `{place}` as they were given it; it stays what it is where all of them return, and "
            f"becomes another where client {LOST} is lost: does its weight still count in the sum that is divided by? "
            f"{ALIGNED}",
        )


def _differs(model: Blocks, one: State, other: State) -> str:
    """The first tensor, by place, that two states do not share, "" where there is none; low-rank factors may differ
    where their product is the same."""
    here, there = dict(places(one)), dict(places(other))
    lone = [place for place, value in here.items() if not close(value, there[place])]
    for pair in pairs(model):
        if pair.A in lone or pair.B in lone:
            B_A, also = (now[pair.B].flatten(1) @ now[pair.A].flatten(1) for now in (here, there))
            if close(B_A, also):
                lone = [place for place in lone if place not in (pair.A, pair.B)]
    return lone[0] if lone else ""
