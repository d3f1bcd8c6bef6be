"""Methods whose clients train low-rank adapters of unequal ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.families.adapter_ranks import (
    ArrivedAdapter,
    added,
    arrived_adapters,
    depth_under_ranks,
    drawn_terms,
    factored,
    first_terms,
    names_of,
    only_without_feddyn,
    ranks_of,
    replaced,
    smallest_rank,
    with_pairs,
    zero_padded,
)
from fedbench.families.aggregation import Weights, averaging, weighted_mean
from fedbench.families.deployed_submodel import ranks
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.lowrank import pairs, rank_of
from fedbench.models.param_paths import holders, mapped, places
from fedbench.options import Positive, judged
from fedbench.types import Cohort, Plan, Uploads

# FedIT with zero-padding: the plain baseline of unequal ranks (Zhang et al., ICASSP 2024, arXiv 2305.05644)


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
    everybody's; clients hold all layers, or their first L_n where the scenario gives no ranks; those that have a layer
    share its divisor; a term that nobody trained who came back keeps its value. FLoRA's code scales differently on
    server and clients, and draws new adapters for clients; neither is taken over.
    """
    if setup.scenario.ranks is not None:
        only_without_feddyn(setup)  # zeros of those without a term would enter its mean - h / a
    model = in_layers(setup.backbone)

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        r_n = ranks_of(model, cohort)
        least = smallest and not setup.scenario.fitting  # of those that fit, which are not known before
        return first_terms(model, plan, torch.full_like(r_n, smallest_rank(model, setup.scenario)) if least else r_n)

    @averaging(weights)
    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        found = arrived_adapters(model, uploads, plan, cohort, weights)
        return with_pairs(state, uploads, plan, cohort, found, zero_padded(state), weights)

    return layerwise(setup, "prefix", aggregate, objective, share=share, depth_of=depth_under_ranks(setup), sizes=ranks)


# FlexLoRA: the mean of whole products, shared out by SVD (Bai et al., NeurIPS 2024, arXiv 2402.11505)


@judged("flexlora")
def flexlora(
    setup: Setup,
    weights: Weights = "examples",
    objective: Ref = "cross_entropy",
    scale: Literal["own", "shared"] = "own",
) -> Method:
    """The server averages the clients' whole updates s_n B_n A_n and sends client n their best approximation of rank
    r_n.

    weights: by number of `examples`, the paper's, or `uniform`. The paper's and the released code's: dW = sum p_n s_n
    B_n A_n with s_n = alpha / r_n, dW = U Sigma V^T, A_n = V^T[:r_n, :], B_n = U[:, :r_n] Sigma[:r_n] / s_n. Ours: the
    global model is the best part of dW of the adapter's rank R, and what dW has beyond that is dropped; signs, which an
    SVD leaves open, make the largest entry of each row of A positive; dW itself is never made, the factors do; a
    client's first L_n layers where a scenario gives no ranks.

    scale: s_n is each client's `own`, alpha / r_n, as above, or `shared`, alpha / R, as other methods have it. A step
    moves s_n B_n A_n in proportion to s_n^2, so that with `own` a client of rank 2 moves it 16 times as far as one of
    rank 8: it needs a lower rate, and the classifier the usual one (`train.optimizer.head_lr`).
    """
    only_without_feddyn(setup)
    model = in_layers(setup.backbone)

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        r_n, R, shared = ranks_of(model, cohort), rank_of(model), pairs(model)[0].scaling
        s_n = shared * R / r_n.double() if scale == "own" else torch.full((len(r_n),), shared, dtype=torch.float64)
        return replace(first_terms(model, plan, r_n), scales=s_n)

    def start(state: State, plan: Plan, cohort: Cohort, t: int) -> State:
        """With a B of its own for every client: s_n B_n is the server's (alpha / R) B, in the terms it has."""
        if scale == "shared":
            return state
        r_n, server = ranks_of(model, cohort), dict(places(state))
        own = {}
        for pair in pairs(model):
            B, shares = server[pair.B], r_n[holders(plan, pair.B)].double() / pair.rank  # (out, R), (n,)
            own[pair.B] = B * shares.to(B).view(-1, *[1] * B.dim())
        return {**state, **mapped(lambda place, value: own.get(place, value), state)}

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        found = arrived_adapters(model, uploads, plan, cohort, weights)
        return with_pairs(state, uploads, plan, cohort, found, redistributed, weights)

    return layerwise(
        setup, "prefix", aggregate, objective, share=share, start=start, depth_of=depth_under_ranks(setup), sizes=ranks
    )


def redistributed(one: ArrivedAdapter) -> tuple[Tensor, Tensor]:
    """A = V^T (R, in) and B = U Sigma R / alpha (out, R) of dW = sum_n w_n s_n B_n A_n."""
    shares = (one.weights * one.scales).to(one.B)
    U, sigma, Vt = factored(one.B * shares[:, None, None], one.A, one.pair.rank)
    return Vt, U * (sigma / one.pair.scaling)


# raFLoRA: whole updates averaged slice by slice of ranks (Wu et al., 2026, arXiv 2602.13486)


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
        found = arrived_adapters(model, uploads, plan, cohort, weights)
        return with_pairs(state, uploads, plan, cohort, found, by_slice, weights)

    def by_slice(one: ArrivedAdapter) -> tuple[Tensor, Tensor]:
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


# FLoRA: adapters of every client's own rank are stacked, folded into the frozen weights and drawn again (Wang et
# al., NeurIPS 2024, arXiv 2409.05976)


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
        for one in arrived_adapters(model, uploads, plan, cohort, weights):
            sums[one.pair.place] = one.product()
            ranks[one.pair.place] = int(one.terms.sum())
            left |= {one.pair.A: old[one.pair.A].clone(), one.pair.B: torch.zeros_like(old[one.pair.B])}
        return added(replaced(new, left), sums, ranks)

    depth_of = depth_under_ranks(setup)
    return layerwise(
        setup, allocation, folded, objective, share=own_rank, fresh=factors, depth_of=depth_of, sizes=ranks
    )


# Fed-PLoRA: parallel rank-one adapters, drawn again every round (Zhang, Hu, Xu, ICLR 2026, arXiv 2602.16936)


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
        drawn = drawn_terms(ranks_of(model, cohort), rank_of(model), generator)
        return replace(plan, trained_terms=plan.M[:, :, None] & drawn[:, None, :])

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        return weighted_mean(state, uploads, plan, cohort, weights)

    return layerwise(setup, "prefix", aggregate, objective, share=share, depth_of=depth_under_ranks(setup), sizes=ranks)


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedit", fedit, ignores=["widths"], family="Rank", paper="Zhang et al., FedIT, ICASSP 2024, arXiv 2305.05644"
    )
    register(
        "flexlora",
        flexlora,
        ignores=["widths"],
        family="Rank",
        later=["scale"],
        paper="Bai et al., FlexLoRA, NeurIPS 2024, arXiv 2402.11505",
    )
    register("raflora", raflora, ignores=["widths"], family="Rank", paper="Wu et al., raFLoRA, 2026, arXiv 2602.13486")
    register(
        "flora", flora, ignores=["widths"], family="Rank", paper="Wang et al., FLoRA, NeurIPS 2024, arXiv 2409.05976"
    )
    register(
        "fed_plora",
        fed_plora,
        ignores=["widths"],
        family="Rank",
        paper="Zhang et al., Fed-PLoRA, ICLR 2026, arXiv 2602.16936",
    )
