"""FedIT with zero-padding: the plain baseline of unequal ranks (Zhang et al., ICASSP 2024, arXiv 2305.05644)."""

from __future__ import annotations

import torch
from torch import Generator

from fedbench import hookimpl
from fedbench.families.aggregation import Weights
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import (
    came,
    depth_under_ranks,
    first_terms,
    only_without_feddyn,
    ranks_of,
    smallest_rank,
    with_pairs,
    zero_padded,
)
from fedbench.families.sizes import ranks
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.options import judged
from fedbench.types import Cohort, Plan, Uploads


@judged("fedit")
def fedit(
    setup: Setup, weights: Weights = "examples", smallest: bool = False, objective: Ref = "cross_entropy"
) -> Method:
    """Client n trains the first r_n terms of every low-rank adapter; the server pads A_n and B_n with zeros and
    averages each by itself.

    weights: by number of `examples`, the paper's, or `uniform`. smallest: everybody has the smallest rank that any
    registered client may have, whatever it could hold: one rank, as in FedIT itself, and the floor of a comparison.

    FedIT has one rank; zero-padding is how those who compare with it (FLoRA, HetLoRA, FlexLoRA) let it have several:
    the zeros are averaged in, and every term is divided by all clients that arrived. Ours: the scale alpha / R is
    everybody's; clients hold all layers, or their first L_n where the scenario gives no ranks; whoever has a layer
    shares its divisor; a term that nobody trained who came back keeps its value. FLoRA's code scales differently on
    server and clients, and draws clients' adapters anew; neither is taken over.
    """
    if setup.scenario.ranks is not None:
        only_without_feddyn(setup)  # zeros of those without a term would enter its mean - h / a
    model = in_layers(setup.backbone)

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        r_n = ranks_of(model, cohort)
        least = smallest and not setup.scenario.fitting  # of those that fit, which are not known before
        return first_terms(model, plan, torch.full_like(r_n, smallest_rank(model, setup.scenario)) if least else r_n)

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        found = came(model, uploads, plan, cohort, weights)
        return with_pairs(state, uploads, plan, cohort, found, zero_padded(state), weights)

    return layerwise(setup, "prefix", aggregate, objective, share=share, depth_of=depth_under_ranks(setup), sizes=ranks)


@hookimpl
def fedbench_register_methods(register):
    register("fedit", fedit, ignores=["widths"], paper="Zhang et al., FedIT, ICASSP 2024, arXiv 2305.05644")
