"""FedKSeed: K directions for everybody, and what a client has learnt along each (Qin et al., ICML 2024, arXiv
2312.06353)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.aggregation import Weights
from fedbench.families.forward_only import Direction, ForwardClient, move, replay, slope_along
from fedbench.families.layerwise import ForwardOnly, Steps, layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import in_layers
from fedbench.models.forward_cost import ForwardPasses
from fedbench.options import Count, Positive, judged
from fedbench.seeding import numpy_generator
from fedbench.types import Cohort, Plan


@judged("fedkseed")
def fedkseed(
    setup: Setup,
    K: Count = 4096,
    zo_eps: Positive = 5e-4,
    weights: Weights = "examples",
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients estimate gradients along K directions that everybody can draw, and send K numbers, which the server adds
    up.

    In every local step a client draws one of the K seeds, whose direction z_j ~ N(0, I) is the same for all clients and
    rounds, and steps by two forward passes, w <- w - lr g z_j with g = (L(w + eps z_j) - L(w - eps z_j)) / (2 eps). It
    sends the sums G_n[j] of its g, and the server does w <- w - lr sum_n p_n sum_j G_n[j] z_j: as every step moves w by
    multiples of the z_j, that is the mean of the clients' models. The client is sent the sums so far, from which it
    draws w again.

    K, zo_eps: as in the released code (zhenqincn/FedKSeed at ebf8216), whose lr is the suite's `train.optimizer.lr`.
    weights: p_n by number of `examples`, as there by number of batches, or `uniform`. The paper tunes all weights,
    which is `adapter: full` here; other adapters train fewer, and the classifier always is. Ours: momentum, weight
    decay, `head_lr`, clipping and dropout have no say; the recorded loss is the mean of both passes. FedKSeed-Pro,
    which draws seeds by what they gave, is left out.
    """
    L = in_layers(setup.backbone).num_layers

    def direction(j: int) -> Direction:
        return Direction(setup.seed, -1, -1, j)

    def steps(state: State, plan: Plan, cohort: Cohort, t: int) -> Steps:
        def take(client: ForwardClient) -> float:
            begun = {place: parameter.detach().clone() for place, parameter in client.parameters.items()}
            draw, lr = numpy_generator(setup.seed, t, client.id, "fedkseed"), client.job.optimizer["lr"]
            G, losses = dict[int, float](), []
            for batch in client.batches():
                j = int(draw.integers(K))
                loss, g = slope_along(client, batch, direction(j), zo_eps)
                move(client, direction(j), -lr * g)
                G[j] = G.get(j, 0.0) + g
                losses.append(loss)
            replay(client, begun, ((direction(j), G[j]) for j in sorted(G)), lr)
            return sum(losses) / max(len(losses), 1)

        return take

    forward = ForwardOnly(steps, ForwardPasses(passes=2, scalars=(4 * K, 4 * K)))
    averaged = {"name": "weighted_mean", "weights": weights}
    return layerwise(setup, "prefix", averaged, objective, depth_of=lambda L_n: L, forward=forward)


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedkseed",
        fedkseed,
        ignores=["capacities", "ranks", "widths"],
        family="Forward passes",
        paper="Qin et al., FedKSeed, ICML 2024, arXiv 2312.06353",
    )
