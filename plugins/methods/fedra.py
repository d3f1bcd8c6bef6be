"""FedRA: random layers for every client (Su et al., arXiv 2311.11227)."""

from __future__ import annotations

from typing import Literal

from fedbench import hookimpl
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup
from fedbench.options import judged

ALLOCATIONS = {"keep": "random", "cover": "cover"}


@judged("fedra")
def fedra(
    setup: Setup,
    missing_layers: Literal["keep", "cover"] = "keep",
    allocation: Ref | None = None,
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Each round every client gets L_n random layers, trains them as a shallower model, and the server averages
    layer by layer.

    missing_layers: `keep` leaves a layer that nobody held at its last value (v1, Eq. 3); `cover` draws M so
    that every layer is held (v1, Eq. 4). allocation: another component in place of FedRA's own draw.
    """
    return layerwise(setup, allocation or ALLOCATIONS[missing_layers], aggregator, objective)


# The released code averages the patch embedding's adapter over all participants, but only when client 0 is
# among them.
REFERENCE = {"aggregator": {"name": "weighted_mean", "weights": "uniform", "outside_layers": "with_client_0"}}


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedra",
        fedra,
        ignores=["ranks", "widths"],
        look=3,
        profiles={"reference": REFERENCE},
        family="Depth",
        paper="Su et al., FedRA, ECCV 2024, arXiv 2311.11227",
    )
