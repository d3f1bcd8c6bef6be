"""Exclusive learning: only the clients that can hold the whole model take part (DepthFL, Sec. 4)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup


def exclusive(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy") -> Method:
    """FedAvg of the adapters over the clients with L_n = L; the data of all others is left out.

    Not applicable where no client can ever hold the whole model. A round in which none of them takes part
    changes nothing.
    """
    L = setup.backbone.num_layers
    if setup.scenario.capacities.max() < L:
        raise NotApplicable(f"no client can hold all {L} layers")
    return layerwise(setup, "prefix", aggregator, objective, depth_of=lambda L_n: L if L_n >= L else None)


@hookimpl
def fedbench_register_methods(register):
    register(
        "exclusive",
        exclusive,
        ignores=["ranks", "widths"],
        role="control",
        paper="Kim et al., DepthFL, ICLR 2023, Sec. 4",
    )
