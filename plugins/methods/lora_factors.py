"""Methods that choose which factor of an adapter is trained, sent or kept: FFA-LoRA, RoLoRA and FedSA-LoRA."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Generator

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families import personal_params
from fedbench.families.adapter_ranks import names_of
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import HEAD, Blocks, in_layers
from fedbench.options import judged
from fedbench.types import Cohort, Plan

# FFA-LoRA: A is frozen as it was drawn, B alone is trained and averaged (Sun et al., ICLR 2024, arXiv 2403.12313)


def ffa_lora(
    setup: Setup,
    allocation: Ref = "prefix",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Everybody has the same A, drawn once, which nobody trains or sends; clients train B, and the server averages it:
    sum p_k B_k A = (sum p_k B_k) A, so that the mean of factors is the mean of products.

    The classifier is trained and averaged as usual. A is drawn as the adapter draws it (loralib: Kaiming uniform); the
    paper tries others. The mean is by examples; a third party's code (CERT-Lab/fedex-lora) has it unweighted, which
    `profile: reference` takes. Not applicable to adapters without low-rank factors.
    """
    return layerwise(setup, allocation, aggregator, objective, fixed=lambda model: names_of(model, "A"))


# RoLoRA: B and A are trained and averaged in turn, each while the other is frozen (Chen et al., 2025, arXiv
# 2502.01755)


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


# FedSA-LoRA: A is averaged, B and the classifier stay with the client (Guo et al., ICLR 2025, arXiv 2410.01463)


def fedsa_lora(
    setup: Setup,
    allocation: Ref = "prefix",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients train A and B; A alone is sent and averaged, B and the classifier are every client's own.

    What stays at home is that of the authors' code (`local_param: [lora_B, classifier]`). A client begins with the B =
    0 and the classifier that all were given first, and answers with the server's A and its own; one that never took
    part answers with those first ones. Under `allocation: prefix` a client's model is as deep as it was when it last
    trained, where its classifier reads; under any other it has all layers, as FedRA's. There is no global model: not
    applicable but with `evaluation: {by: client}`, nor to adapters without low-rank factors, nor under FedDyn.
    """
    in_layers(setup.backbone)
    if not setup.by_client:
        raise NotApplicable(
            "every client keeps B and a classifier of its own, and there is no global model to test or to write: "
            "`evaluation: {by: client}` tests each client's"
        )

    def own(model: Blocks) -> tuple[str, ...]:
        return (*names_of(model, "B"), *([] if model.predicts_tokens else [f"{HEAD}.*"]))  # which is frozen then

    if allocation not in ("prefix", {"name": "prefix"}):
        return layerwise(setup, allocation, aggregator, objective, keeps=own)
    aggregate = personal_params.remembering(setup.component("aggregator", aggregator))
    return personal_params.answering(layerwise(setup, allocation, aggregate, objective, keeps=own))


@hookimpl
def fedbench_register_methods(register):
    register(
        "ffa_lora",
        ffa_lora,
        ignores=["ranks", "widths"],
        family="Aggregation",
        paper="Sun et al., FFA-LoRA, ICLR 2024, arXiv 2403.12313",
    )
    register(
        "rolora",
        rolora,
        ignores=["ranks", "widths"],
        family="Aggregation",
        paper="Chen et al., RoLoRA, NeurIPS 2025, arXiv 2502.01755",
    )
    register(
        "fedsa_lora",
        fedsa_lora,
        ignores=["ranks", "widths"],
        family="Aggregation",
        paper="Guo et al., FedSA-LoRA, ICLR 2025, arXiv 2410.01463",
    )
