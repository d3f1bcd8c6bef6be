"""FedSA-LoRA: A is averaged, B and the classifier stay with the client (Guo et al., ICLR 2025, arXiv 2410.01463)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families import owndepth
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import names_of
from fedbench.method import Method, Ref, Setup
from fedbench.models.backbone import HEAD, Blocks, in_layers


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
        return (*names_of(model, "B"), f"{HEAD}.*")

    if allocation not in ("prefix", {"name": "prefix"}):
        return layerwise(setup, allocation, aggregator, objective, keeps=own)
    aggregate = owndepth.remembering(setup.component("aggregator", aggregator))
    return owndepth.answering(layerwise(setup, allocation, aggregate, objective, keeps=own))


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedsa_lora",
        fedsa_lora,
        ignores=["ranks", "widths"],
        paper="Guo et al., FedSA-LoRA, ICLR 2025, arXiv 2410.01463",
    )
