"""Other random layers in every batch: the plainest layer dropout within a client's capacity, which is ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Generator

from fedbench import hookimpl
from fedbench.families.deployed_submodel import capacities
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models import cost
from fedbench.models.backbone import in_layers
from fedbench.models.optimizer import optimizer_states
from fedbench.models.tokens import over_tokens
from fedbench.options import judged
from fedbench.seeding import numpy_generator
from fedbench.types import ClientCost, Cohort, Plan, Report


@judged("batch_layers")
def batch_layers(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy") -> Method:
    """Every client has all layers, and runs L_n of them in each batch, drawn uniformly; the server averages all layers.

    So each layer is dropped with probability 1 - L_n / L, by the client's capacity. What a batch does not run gets no
    step from it. A client keeps the activations of L_n layers; but it is sent, holds and sends back all of them, where
    FedRA's clients have L_n for a whole round. The model is tested with all layers, without scaling, as FedRA's is.

    Ours, after DropPEFT (Wang et al., arXiv 2503.10217), of which the abstract was read: its rates, which it finds for
    each device by a bandit, its distribution over the layers and what it keeps on the devices are not known here, so
    that it does not bear that name. One classifier, behind the last layer that runs.
    """
    model = in_layers(setup.backbone)
    L = model.num_layers

    def by_batch(plan: Plan, cohort: Cohort, t: int) -> Callable[[int, int], Sequence[int]]:
        def layers(n: int, step: int) -> Sequence[int]:
            draw = numpy_generator(setup.seed, t, cohort.ids[n], f"layers/{step}")
            drawn: list[int] = sorted(draw.permutation(L)[: int(cohort.capacities[n])].tolist())
            return drawn

        return layers

    base = layerwise(
        setup, "prefix", aggregator, objective, depth_of=lambda L_n: L, by_batch=by_batch, sizes=capacities
    )
    loss = setup.component("objective", objective)
    loss = over_tokens(loss) if model.predicts_tokens else loss
    price = cost.pricing(model, loss, setup.train, setup.image_size)

    def charged(L_n: int) -> ClientCost:
        """Of a model of L_n layers, with the weights of the others, which are there and travel."""
        whole = base.price(L, 0)
        assert whole is not None
        adapters = sum(p.nbytes for p in model.r(0).values())  # of a layer
        own = price(cost.whole(L_n, head_at_end(L_n)))
        return whole if L_n == L else with_layers(own, whole, L - L_n, adapters, setup)

    def round(state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        new, report = base.round(state, t, cohort, generator)
        return new, replace(report, cost=[charged(L_n) for L_n in report.cohort.capacities.tolist()])

    return replace(base, round=round, cost=lambda L_n, t: charged(L_n))


def with_layers(own: ClientCost, whole: ClientCost, more: int, adapters: int, setup: Setup) -> ClientCost:
    """The cost of a shallow model whose client also holds so many layers that a batch does not run: their frozen
    weights, adapters (bytes of a layer's), gradients and optimizer's state; what is sent is that of the whole model,
    whose batches, too, can be computed in parts or not."""
    assert own.frozen is not None
    states = 2 + optimizer_states(setup.train["optimizer"]) + cost.regularizer_copies(setup.train)
    resident = more * (own.frozen.layer + states * adapters)
    travelling = replace(own, bytes_down=whole.bytes_down, bytes_up=whole.bytes_up, sent=whole.sent)
    return replace(travelling, memory_bytes=own.memory_bytes + resident, passes=own.passes if whole.passes else ())


@hookimpl
def fedbench_register_methods(register):
    register(
        "batch_layers",
        batch_layers,
        ignores=["ranks", "widths"],
        family="Depth",
        paper="Wang et al., after DropPEFT, 2025, arXiv 2503.10217",
    )
