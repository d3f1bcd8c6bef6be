"""RoLoRA: B and A are trained and averaged in turn, each while the other is frozen (Chen et al., 2025, arXiv
2502.01755)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Generator

from fedbench import hookimpl
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import names_of
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.options import judged
from fedbench.types import Cohort, Plan


@judged("rolora")
def rolora(
    setup: Setup,
    first: Literal["A", "B"] = "B",
    allocation: Ref = "prefix",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """By the parity of the round clients train B while A is frozen, then A while B is, and the server averages the half
    that was trained: the mean of factors is the mean of products in every round.

    first: which half the first round trains. B, since B = 0 at first, and A has no gradient before B has moved; that
    is ours, as the paper was not at hand. The classifier is trained in every round. Clients are sent both halves, as
    one that missed a round has neither of them right; they send back the half they have trained. Not applicable to
    adapters without low-rank factors.
    """
    model, second = in_layers(setup.backbone), "A" if first == "B" else "B"

    def one_half(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        return replace(plan, frozen=(*plan.frozen, *names_of(model, (second, first)[t % 2])))

    method = layerwise(setup, allocation, aggregator, objective, share=one_half)
    names_of(model, "AB")  # raises where there are no halves, before a round is begun
    return method


@hookimpl
def fedbench_register_methods(register):
    register("rolora", rolora, ignores=["ranks", "widths"], paper="Chen et al., RoLoRA, 2025, arXiv 2502.01755")
