"""Head only: a linear probe of the frozen backbone, the control that shows what the adapters add."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup


def head_only(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy") -> Method:
    """Every client trains the classifier alone, on the full frozen depth whatever its capacity: a control, not a
    method."""
    L = setup.backbone.num_layers
    return layerwise(setup, "prefix", aggregator, objective, adapt=False, depth_of=lambda L_n: L)


@hookimpl
def fedbench_register_methods(register):
    register("head_only", head_only, ignores=["capacities", "ranks", "widths", "adapter"], role="control")
