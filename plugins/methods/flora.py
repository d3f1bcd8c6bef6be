"""FLoRA: adapters of every client's own rank are stacked, folded into the frozen weights and drawn anew (Wang et al.,
NeurIPS 2024, arXiv 2409.05976)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.families.aggregation import Weights, weighted_mean
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import (
    added,
    came,
    depth_under_ranks,
    first_terms,
    names_of,
    only_without_feddyn,
    ranks_of,
    replaced,
)
from fedbench.families.sizes import ranks
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.param_paths import places
from fedbench.options import Positive, judged
from fedbench.types import Cohort, Plan, Uploads


@judged("flora")
def flora(
    setup: Setup,
    scale: Positive = 2.0,
    weights: Weights = "examples",
    allocation: Ref = "prefix",
    objective: Ref = "cross_entropy",
) -> Method:
    """Each round every client draws new adapters of its own rank, A at random and B = 0; the server adds sum p_k s B_k
    A_k to the frozen weights, and the adapters are dropped: no aggregation error, whatever the ranks.

    scale: s, the same for all, in place of the adapter's alpha / rank: the authors' code (ATP-1010/FederatedLLM) has
    alpha_k = 2 r_k. weights: p_k by number of `examples`, as there, or `uniform`. Ranks are the scenario's, or the
    adapter's for everybody. The stacked factors have rank sum r_k and are charged as such, or as the matrix where that
    is smaller; new adapters come from the round's and the client's seed, and are not sent down. Classifiers are
    averaged as usual, which is ours: the paper's models have none. Not applicable to adapters without low-rank factors,
    nor under FedDyn.
    """
    only_without_feddyn(setup)
    model = in_layers(setup.backbone)

    def own_rank(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        scales = torch.full((len(cohort),), scale, dtype=torch.float64)
        return replace(first_terms(model, plan, ranks_of(model, cohort)), scales=scales)

    def factors(_: object) -> tuple[str, ...]:
        return names_of(model, "AB")

    def folded(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        """[B_1 ... B_K] [p_1 A_1; ...; p_K A_K] goes into W; A stays as it was and B is 0, so that W is the model."""
        new = weighted_mean(state, uploads, plan, cohort, weights)
        old, sums, ranks = dict(places(state)), {}, {}
        left: dict[str, Tensor] = {}
        for one in came(model, uploads, plan, cohort, weights):
            sums[one.pair.place] = one.product()
            ranks[one.pair.place] = int(one.terms.sum())
            left |= {one.pair.A: old[one.pair.A].clone(), one.pair.B: torch.zeros_like(old[one.pair.B])}
        return added(replaced(new, left), sums, ranks)

    depth_of = depth_under_ranks(setup)
    return layerwise(
        setup, allocation, folded, objective, share=own_rank, fresh=factors, depth_of=depth_of, sizes=ranks
    )


@hookimpl
def fedbench_register_methods(register):
    register("flora", flora, ignores=["widths"], paper="Wang et al., FLoRA, NeurIPS 2024, arXiv 2409.05976")
