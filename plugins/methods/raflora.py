"""raFLoRA: whole updates averaged slice by slice of ranks (Wu et al., 2026, arXiv 2602.13486)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.families.aggregation import Weights
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import (
    Came,
    came,
    depth_under_ranks,
    factored,
    first_terms,
    only_without_feddyn,
    ranks_of,
    with_pairs,
)
from fedbench.families.sizes import ranks
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.options import judged
from fedbench.types import Cohort, Plan, Uploads


@judged("raflora")
def raflora(setup: Setup, weights: Weights = "examples", objective: Ref = "cross_entropy") -> Method:
    """The server averages each slice of terms, between one rank that occurs and the next, over the clients whose rank
    reaches it, and shares out the sum of the slices' products by SVD.

    weights: by number of `examples`, the paper's, or `uniform`. The paper's (read in a third party's code, which names
    Algorithm 1 and Eq. 8, and the abstract): R_1 < ... < R_m are the ranks of all registered clients; of the slice
    (l, h] the clients with r_n >= h give dW_h = sum n_n / N_h B_n[:, l:h] A_n[l:h, :]; dW = sum_h dW_h = U Sigma V^T, B
    = U Sigma^(1/2), A = Sigma^(1/2) V^T, of which client n gets the first r_n terms. A slice that nobody's work reaches
    is left out of dW: what the model had there is gone. Ours: one scale alpha / R for everybody, the paper's formulas
    having none; where ranks are drawn every round, all that may be drawn are levels; an SVD's open signs make the
    largest entry of each row of A positive; a client's first L_n layers where a scenario gives no ranks.
    """
    only_without_feddyn(setup)
    model = in_layers(setup.backbone)

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        return first_terms(model, plan, ranks_of(model, cohort))

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        found = came(model, uploads, plan, cohort, weights)
        return with_pairs(state, uploads, plan, cohort, found, by_slice, weights)

    def by_slice(one: Came) -> tuple[Tensor, Tensor]:
        w = slice_weights(one.terms.sum(1).cpu(), one.weights, levels_of(setup, one.pair.rank)).to(one.B)
        U, sigma, Vt = factored(one.B * w[:, None, :], one.A, one.pair.rank)
        root = sigma.sqrt()
        return root[:, None] * Vt, U * root

    return layerwise(setup, "prefix", aggregate, objective, share=share, depth_of=depth_under_ranks(setup), sizes=ranks)


def levels_of(setup: Setup, R: int) -> list[int]:
    """R_1 < ... < R_m, the ranks that registered clients may have, and the adapter's R."""
    given = setup.scenario.different("ranks")
    return sorted({R} | {rank for low, high in given for rank in range(low, high + 1)})


def slice_weights(r_n: Tensor, weights: Tensor, levels: list[int]) -> Tensor:
    """(n, R): the weight of each client's terms, summing to 1 over the clients that reach a term's slice, 0 where
    none does. r_n, weights (n,)."""
    columns, below = [], 0
    for h in levels:
        own = weights * (r_n >= h)
        total = own.sum()
        columns.append((own / total.where(total > 0, torch.ones_like(total)))[:, None].expand(-1, h - below))
        below = h
    return torch.cat(columns, 1)


@hookimpl
def fedbench_register_methods(register):
    register("raflora", raflora, ignores=["widths"], paper="Wu et al., raFLoRA, 2026, arXiv 2602.13486")
