"""AllLarge: a ceiling that no real federation reaches (FedRA, Sec. 4.1)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup


def alllarge(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy") -> Method:
    """Every client trains all L layers, whatever its capacity."""
    L = setup.backbone.num_layers
    return layerwise(setup, "prefix", aggregator, objective, depth_of=lambda L_n: L)


@hookimpl
def fedbench_register_methods(register):
    register(
        "alllarge",
        alllarge,
        ignores=["capacities", "ranks", "widths"],
        role="ceiling",
        paper="Su et al., FedRA, 2023, arXiv 2311.11227, Sec. 4.1",
    )
