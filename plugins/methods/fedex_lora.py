"""FedEx-LoRA: what averaging the factors loses is added to the frozen weights (Singhal et al., ACL 2025, arXiv
2410.09432)."""

from __future__ import annotations

from collections.abc import Callable

from fedbench import hookimpl
from fedbench.families.aggregation import Weights, weighted_mean
from fedbench.families.layerwise import layerwise
from fedbench.families.lowrank import added, came, names_of, only_without_feddyn
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.param_paths import places
from fedbench.options import judged
from fedbench.types import Cohort, Plan, Uploads


def fedex_lora(
    setup: Setup,
    allocation: Ref = "prefix",
    aggregator: Ref = "exact_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients train A and B, the server averages both and adds the residual, the mean of products less the product of
    the means, to the frozen weight: no aggregation error.

    The residual is of rank (K + 1) r at most, for K clients, and is charged as factors of that rank or as the matrix,
    whichever is the smaller. Not applicable to adapters without low-rank factors, nor under FedDyn.
    """
    method = layerwise(setup, allocation, aggregator, objective)
    names_of(in_layers(setup.backbone), "AB")
    return method


@judged("exact_mean")
def exact_mean(setup: Setup, weights: Weights = "examples") -> Callable[[State, Uploads, Plan, Cohort], State]:
    """The per-layer mean of everything, with R = sum p_k B_k A_k - B A of every low-rank adapter, B and A being the
    means, added to its frozen weight: W <- W + s R, over all rounds.

    weights: p_k by number of `examples`, or `uniform` as in the authors' code (CERT-Lab/fedex-lora), in all three
    means. R is that of B and A as they are kept, in float64, so that the model errs by the rounding of W + s R alone.
    Of what one client alone has trained nothing is lost, and R is not sent. Where clients hold rank-one terms of their
    own, each factor is averaged over those who hold it, and R is what that loses.
    """
    only_without_feddyn(setup)
    model = in_layers(setup.backbone)

    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        new = weighted_mean(state, uploads, plan, cohort, weights)
        means, residuals, ranks = dict(places(new)), {}, {}
        for one in came(model, uploads, plan, cohort, weights):
            if one.single():
                continue
            A, B = (means[place].double().flatten(1) for place in (one.pair.A, one.pair.B))
            residuals[one.pair.place] = one.product() - one.pair.scaling * B @ A
            ranks[one.pair.place] = int(one.terms.sum()) + one.pair.rank
        return added(new, residuals, ranks)

    return aggregate


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedex_lora",
        fedex_lora,
        ignores=["ranks", "widths"],
        paper="Singhal et al., FedEx-LoRA, ACL 2025, arXiv 2410.09432",
    )


@hookimpl
def fedbench_register_aggregators(register):
    register(
        "exact_mean",
        exact_mean,
        ignores=["capacities", "ranks", "widths"],
        profiles={"reference": {"weights": "uniform"}},
    )
