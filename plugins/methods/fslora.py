"""FSLoRA: clients train a random sketch of the server's adapters (Fang et al., 2025, arXiv 2501.19389)."""

from __future__ import annotations

from dataclasses import replace

from torch import Generator

from fedbench import hookimpl
from fedbench.families.adapter_ranks import depth_under_ranks, drawn_terms, ranks_of
from fedbench.families.aggregation import Weights, averaging, weighted_mean
from fedbench.families.deployed_submodel import ranks
from fedbench.families.layerwise import layerwise
from fedbench.families.regularizer import refuse_feddyn
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.lowrank import pairs, rank_of
from fedbench.options import judged
from fedbench.types import Cohort, Plan, Uploads


@judged("fslora")
def fslora(setup: Setup, weights: Weights = "uniform", objective: Ref = "cross_entropy") -> Method:
    """Each round client n trains r_n of the R terms of every adapter, drawn uniformly; the server adds the mean of the
    sparse updates.

    weights: of the mean, `uniform`, the paper's, or by number of `examples`. The paper's: the client's model is W + s B
    S_n A with the sketch S_n = R / r_n sum_(j in I_n) e_j e_j^T, I_n of r_n of the R terms, so that E[S_n] = I; local
    steps change the columns of B and the rows of A in I_n alone; (A, B) <- (A, B) + 1 / N sum_n (Delta A_n, Delta B_n),
    where an update is 0 outside of I_n and all clients share the divisor. The global model is W + s B A. Ours: one
    sketch for all adapters of a client in a round, where the paper writes of one adapter; those that have a layer share
    its divisor; a client's first L_n layers where a scenario gives no ranks, with S_n = I.

    The released code (wenzhifang/Federated-Sketching-LoRA-Implementation at ac24177) compares whole names of parameters
    with `lora_A` and `lora_B`, which none has, so that every client trains all terms; that is not taken over.
    """
    if setup.scenario.ranks is not None:
        refuse_feddyn(setup, "corrects means over those who trained a term, and here all clients share the divisor")
    model = in_layers(setup.backbone)

    def sketch(plan: Plan, state: State, t: int, cohort: Cohort, generator: Generator) -> Plan:
        r_n, R = ranks_of(model, cohort), rank_of(model)
        drawn = drawn_terms(r_n, R, generator)  # I_n
        return replace(
            plan, terms=plan.M[:, :, None] & drawn[:, None, :], scales=pairs(model)[0].scaling * R / r_n.double()
        )

    @averaging(weights)
    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        """Rows hold what their client started from outside of its sketch: an update of 0."""
        return weighted_mean(state, replace(uploads, coordinates={}), plan, cohort, weights)

    depth_of = depth_under_ranks(setup)
    return layerwise(setup, "prefix", aggregate, objective, share=sketch, depth_of=depth_of, sizes=ranks)


@hookimpl
def fedbench_register_methods(register):
    register("fslora", fslora, ignores=["widths"], family="Rank", paper="Fang et al., FSLoRA, 2025, arXiv 2501.19389")
