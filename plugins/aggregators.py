"""The aggregation of FedRA's Eq. 3 (v1), which the other depth-allocated methods use too."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.families import aggregation

OUTSIDE = ("always", "with_client_0")


def weighted_mean(weights: str = "examples", outside_layers: str = "always"):
    """The per-layer mean over the clients that hold a layer; a layer nobody returned keeps its value.

    weights: by number of `examples`, or `uniform`. outside_layers: when adapters that stand in no layer are
    averaged, `always` or only `with_client_0`, as in the FedRA authors' code.
    """
    if weights not in aggregation.WEIGHTS:
        raise UserError(f"weighted_mean: weights is {' or '.join(aggregation.WEIGHTS)}, not {weights!r}")
    if outside_layers not in OUTSIDE:
        raise UserError(f"weighted_mean: outside_layers is {' or '.join(OUTSIDE)}, not {outside_layers!r}")

    def aggregate(state, uploads, plan, cohort):
        new = aggregation.weighted_mean(state, uploads, plan, cohort, weights)
        arrived = [cohort.ids[n] for n in uploads.arrived.nonzero().flatten().tolist()]
        if outside_layers == "with_client_0" and 0 not in arrived:
            kept = {name: value.clone() for name, value in state["shared"].items() if name.startswith("model.")}
            new["shared"] = {**new["shared"], **kept}
        return new

    return aggregate


@hookimpl
def fedbench_register_aggregators(register):
    register("weighted_mean", weighted_mean, profiles={"reference": {"weights": "uniform"}})
