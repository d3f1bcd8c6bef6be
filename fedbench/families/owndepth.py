"""Models of clients' own that are as deep as they were when they last trained: a classifier that a client keeps has
read what its own layers gave, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from fedbench.families.layerwise import head_at_end
from fedbench.method import Method, Predict, State
from fedbench.models.globalmodel import GlobalModel
from fedbench.types import Cohort, Plan, Size, Uploads

Aggregate = Callable[[State, Uploads, Plan, Cohort], State]
DEPTHS = "depths"  # in a state's memory, by client: how many layers it last held


def remembering(aggregate: Aggregate) -> Aggregate:
    """The same, which also notes how deep the models are that have come back."""

    @functools.wraps(aggregate)
    def remembered(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        depths, M = dict(state["memory"].get(DEPTHS, {})), plan.M.sum(1).tolist()
        depths |= {str(client): M[n] for n, client in enumerate(cohort.ids) if uploads.arrived[n]}
        new = aggregate(state, uploads, plan, cohort)
        return {**new, "memory": {**new["memory"], DEPTHS: depths}}

    return remembered


def answering(made: Method) -> Method:
    """The same, in which a client's model has its first layers, as many as it last held, and the head behind them; one
    that never came back answers with all."""
    whole, small = (cast(Callable[..., GlobalModel], answer) for answer in (made.predictor, made.at))

    def of_own_depth(model: GlobalModel, state: State, client: int | None) -> GlobalModel:
        depth = min(len(model.layers), state["memory"].get(DEPTHS, {}).get(str(client), len(model.layers)))
        return replace(model, layers=range(depth), exits=head_at_end(depth))

    def predictor(state: State, client: int | None = None) -> Predict:
        return of_own_depth(whole(state, client), state, client)

    def at(state: State, size: Size, client: int | None = None) -> Predict:
        return of_own_depth(small(state, size, client), state, client)

    return replace(made, predictor=predictor, at=at)
