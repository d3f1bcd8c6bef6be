"""FFA-LoRA: A is frozen as it was drawn, B alone is trained and averaged (Sun et al., ICLR 2024, arXiv 2403.12313)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import names_of
from fedbench.method import Method, Ref, Setup


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


@hookimpl
def fedbench_register_methods(register):
    register(
        "ffa_lora", ffa_lora, ignores=["ranks", "widths"], paper="Sun et al., FFA-LoRA, ICLR 2024, arXiv 2403.12313"
    )
