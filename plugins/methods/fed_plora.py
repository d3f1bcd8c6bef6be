"""Fed-PLoRA: parallel rank-one adapters, drawn anew every round (Zhang, Hu, Xu, ICLR 2026, arXiv 2602.16936)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator

from fedbench import hookimpl
from fedbench.families.aggregation import Weights, weighted_mean
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import depth_under_ranks, ranks_of
from fedbench.families.sizes import ranks
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.lowrank import rank_of
from fedbench.options import judged
from fedbench.types import Cohort, Plan, Uploads


@judged("fed_plora")
def fed_plora(setup: Setup, weights: Weights = "examples", objective: Ref = "cross_entropy") -> Method:
    """Every client has all R terms of every adapter; each round it trains r_n of them, drawn uniformly, and the server
    averages every term over those who trained it.

    weights: by number of `examples`, or `uniform`. The paper's (read in a third party's notes; its code could not be
    read): B A = sum_j B[:, j] A[j, :], the terms that are not drawn are folded into the frozen weights before training,
    and a term that nobody trained keeps its value. Here all R terms are computed and the gradients of the others taken
    away, which without dropout is the same function; traffic and FLOPs are those of folding, memory is with all R
    terms. With r_n = R for everybody it is FedIT. Ours: under dropout folded terms see the dropped input, where W sees
    it whole; one draw for all layers of a client; weights by examples; a client's first L_n layers where a scenario
    gives no ranks.
    """
    model = in_layers(setup.backbone)

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        order = torch.rand(len(cohort), rank_of(model), generator=generator, dtype=torch.float64).argsort(1).argsort(1)
        drawn = order < ranks_of(model, cohort)[:, None]  # (N, R)
        return replace(plan, trained_terms=plan.M[:, :, None] & drawn[:, None, :])

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        return weighted_mean(state, uploads, plan, cohort, weights)

    return layerwise(setup, "prefix", aggregate, objective, share=share, depth_of=depth_under_ranks(setup), sizes=ranks)


@hookimpl
def fedbench_register_methods(register):
    register("fed_plora", fed_plora, ignores=["widths"], paper="Zhang et al., Fed-PLoRA, ICLR 2026, arXiv 2602.16936")
