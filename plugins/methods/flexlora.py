"""FlexLoRA: the mean of whole products, shared out by SVD (Bai et al., NeurIPS 2024, arXiv 2402.11505)."""

from __future__ import annotations

from dataclasses import replace

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
from fedbench.models.lowrank import pairs, rank_of
from fedbench.models.param_paths import holders, mapped, places
from fedbench.options import judged
from fedbench.types import Cohort, Plan, Uploads


@judged("flexlora")
def flexlora(setup: Setup, weights: Weights = "examples", objective: Ref = "cross_entropy") -> Method:
    """The server averages the clients' whole updates s_n B_n A_n and sends client n their best approximation of rank
    r_n.

    weights: by number of `examples`, the paper's, or `uniform`. The paper's and the released code's: dW = sum p_n s_n
    B_n A_n with s_n = alpha / r_n, dW = U Sigma V^T, A_n = V^T[:r_n, :], B_n = U[:, :r_n] Sigma[:r_n] / s_n. Ours: the
    global model is the best part of dW of the adapter's rank R, and what dW has beyond that is dropped; signs, which an
    SVD leaves open, make the largest entry of each row of A positive; dW itself is never made, the factors do; a
    client's first L_n layers where a scenario gives no ranks.
    """
    only_without_feddyn(setup)
    model = in_layers(setup.backbone)

    def share(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        r_n, alpha = ranks_of(model, cohort), rank_of(model) * pairs(model)[0].scaling
        return replace(first_terms(model, plan, r_n), scales=alpha / r_n.double())

    def start(state: State, plan: Plan, cohort: Cohort, t: int) -> State:
        """With a B of its own for every client: s_n B_n is the server's (alpha / R) B, in the terms it has."""
        r_n, server = ranks_of(model, cohort), dict(places(state))
        own = {}
        for pair in pairs(model):
            B, shares = server[pair.B], r_n[holders(plan, pair.B)].double() / pair.rank  # (out, R), (n,)
            own[pair.B] = B * shares.to(B).view(-1, *[1] * B.dim())
        return {**state, **mapped(lambda place, value: own.get(place, value), state)}

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        found = came(model, uploads, plan, cohort, weights)
        return with_pairs(state, uploads, plan, cohort, found, redistributed, weights)

    return layerwise(
        setup, "prefix", aggregate, objective, share=share, start=start, depth_of=depth_under_ranks(setup), sizes=ranks
    )


def redistributed(one: Came) -> tuple[Tensor, Tensor]:
    """A = V^T (R, in) and B = U Sigma R / alpha (out, R) of dW = sum_n w_n s_n B_n A_n."""
    shares = (one.weights * one.scales).to(one.B)
    U, sigma, Vt = factored(one.B * shares[:, None, None], one.A, one.pair.rank)
    return Vt, U * (sigma / one.pair.scaling)


@hookimpl
def fedbench_register_methods(register):
    register("flexlora", flexlora, ignores=["widths"], paper="Bai et al., FlexLoRA, NeurIPS 2024, arXiv 2402.11505")
