"""Local only: no federation. Every client trains by itself, the control that shows what sharing is worth to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families.aggregation import weighted_mean
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models.globalmodel import GlobalModel
from fedbench.types import Cohort, Plan, Size, Uploads


def local_only(setup: Setup, objective: Ref = "cross_entropy") -> Method:
    """Every client trains the adapters of its first L_n layers and a classifier on its own images, in the rounds it
    takes part in, and goes on from where it stopped: nothing but the frozen layers is ever sent. A control, not a
    method.

    The model of a client is its own, as deep as it was when it last trained; use `evaluation: {by: client}`. There is
    no global model: what answers in its place, and for a client that never came back, is the start, the adapters as
    they were drawn and a classifier that nobody has trained, which is no better than chance. A client whose work is
    lost has not kept it. Not applicable under FedDyn, which corrects a global model.
    """
    if "feddyn" in (setup.train.get("regularizer") or {}):
        raise NotApplicable("FedDyn corrects one global model, and local_only has none")

    def remembered(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        depths, M = dict(state["memory"].get("depths", {})), plan.M.sum(1).tolist()
        depths |= {str(client): M[n] for n, client in enumerate(cohort.ids) if uploads.arrived[n]}
        new = weighted_mean(state, uploads, plan, cohort)  # of nothing, for nothing is sent
        return {**new, "memory": {**new["memory"], "depths": depths}}

    made = layerwise(setup, "prefix", remembered, objective, keeps=("*",))
    whole, small = (cast(Callable[..., GlobalModel], answer) for answer in (made.predictor, made.at))

    def of_own_depth(model: GlobalModel, state: State, client: int | None) -> GlobalModel:
        depth = min(len(model.layers), state["memory"].get("depths", {}).get(str(client), len(model.layers)))
        return replace(model, layers=range(depth), exits=head_at_end(depth))

    def predictor(state: State, client: int | None = None) -> Predict:
        return of_own_depth(whole(state, client), state, client)

    def at(state: State, size: Size, client: int | None = None) -> Predict:
        return of_own_depth(small(state, size, client), state, client)

    return replace(made, predictor=predictor, at=at)


@hookimpl
def fedbench_register_methods(register):
    register("local_only", local_only, ignores=["ranks", "widths"], role="control")
