"""AllSmall: the model that the weakest client can hold, for everybody (FedRA, Sec. 4.1)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.families.deployed_submodel import deepest
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.method import Method, Ref, Setup
from fedbench.models.globalmodel import GlobalModel
from fedbench.options import Count, judged


@judged("allsmall")
def allsmall(
    setup: Setup, depth: Count | None = None, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy"
) -> Method:
    """Every client trains the first `depth` layers, and the global model is that shallow model, at test time too.

    depth: by default the smallest capacity that may occur; where clients have devices, the largest depth that fits all
    of those that any fits.
    """
    weakest = depth is None
    depth = int(setup.scenario.capacities.min()) if depth is None else depth
    L = setup.backbone.num_layers
    if not 1 <= depth <= L:
        raise UserError(
            f"allsmall: depth must lie between 1 and {L}, the backbone's layers; it is {depth}", option="depth"
        )
    return layerwise(
        setup,
        "prefix",
        aggregator,
        objective,
        depth_of=lambda L_n: L_n if weakest and setup.scenario.fitting else depth,
        predict=lambda model, state: GlobalModel(model, range(depth), head_at_end(depth)),
        at=deepest,
    )


@hookimpl
def fedbench_register_methods(register):
    register(
        "allsmall",
        allsmall,
        ignores=["ranks", "widths"],
        role="floor",
        paper="Su et al., FedRA, 2023, arXiv 2311.11227, Sec. 4.1",
    )
