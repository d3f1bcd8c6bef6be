"""Baselines that share FedRA's training: its ceiling and floor, exclusive learning, a linear probe, no federation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Literal

import torch
from torch import Generator, Tensor

from fedbench import hookimpl
from fedbench.errors import NotApplicable, UserError
from fedbench.families import personal_params
from fedbench.families.aggregation import weighted_mean
from fedbench.families.deployed_submodel import deepest
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.families.regularizer import refuse_feddyn
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.globalmodel import GlobalModel
from fedbench.models.param_paths import mapped
from fedbench.options import Count, judged
from fedbench.types import GLOBAL, ClientCost, Clients, Cohort, Plan, Report, Sent, Uploads

# AllLarge: a ceiling that no real federation reaches (FedRA, Sec. 4.1)


def alllarge(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy") -> Method:
    """Every client trains all L layers, whatever its capacity."""
    L = setup.backbone.num_layers
    return layerwise(setup, "prefix", aggregator, objective, depth_of=lambda L_n: L)


# Pooled: the ceiling of centralised training


def pooled(setup: Setup, objective: Ref = "cross_entropy", steps: Literal["all", "client"] = "all") -> Method:
    """No federation: one model of all L layers is trained on the images of all registered clients together, in each
    round for as many steps as the clients take whose work arrives. The centralised ceiling.

    steps: `all` of those clients' together, or those of the one `client` that takes most, which is how far a
    federated model gets from its start in a round. Clients are charged for all of them in both cases.

    The batches of a round are drawn from all training images, without replacement until each was drawn once. Ours: the
    optimiser begins fresh in each round, as a client's does; regularisers, corrupted uploads and the guard have no say,
    since no model is sent. Each client that is asked is charged the FLOPs of its own steps, and the memory of all
    layers, as under alllarge. Its traffic is its share of all training images, once, at 3 bytes a pixel or 4 a token,
    spread over the suite's rounds.
    """
    return centralised(setup, objective, steps)


def pooled_probe(setup: Setup, objective: Ref = "cross_entropy", steps: Literal["all", "client"] = "all") -> Method:
    """No federation and no adapters: as `pooled`, with the classifier alone trained on the frozen features. What
    `pooled` has more than this, adapters have gained; what `head_only` has less, federation has cost.
    """
    return centralised(setup, objective, steps, adapt=False)


def centralised(setup: Setup, objective: Ref, steps: str, adapt: bool = True) -> Method:
    """`pooled`, or without `adapt` its probe."""
    L = setup.backbone.num_layers
    alone = replace(setup, train={**setup.train, "regularizer": None})
    base = layerwise(alone, "prefix", weighted_mean, objective, adapt=adapt, depth_of=lambda L_n: L)

    def cost(L_n: int, t: int) -> ClientCost:
        charged, clients = base.cost(L_n, t), Clients.of(setup.scenario.clients)
        assert charged is not None  # everybody holds all layers
        each = 4 * setup.image_size if setup.backbone.reads_texts else 3 * setup.image_size**2
        images = math.ceil(each * clients.sizes.mean() / setup.scenario.rounds)
        return replace(charged, bytes_down=0, bytes_up=images, sent=(Sent("images", up=images),))

    def round(state: State, t: int, cohort: Cohort, generator: Generator) -> tuple[State, Report]:
        came = cohort.only(cohort.arrives.nonzero().flatten().tolist())
        N = len(cohort)  # who is lost has computed too, for nothing, as under any method
        new, one = base.round(state, t, together(came, steps), generator)
        nothing = mapped(lambda place, rows: rows[:0], {"r": one.uploads.r, "shared": one.uploads.shared})
        loss, seconds = one.uploads.loss.expand(N), one.uploads.seconds.expand(N) / max(N, 1)
        plan = Plan(one.plan.M.expand(N, L), [*one.plan.exits] * N, frozen=("*",))  # no client trains, or sends
        report = Report(plan, cohort, Uploads.of(cohort, **nothing, loss=loss, seconds=seconds), [cost(L, t)] * N)
        return (new if len(came) else state), report

    return replace(base, round=round, cost=cost, alone=True)


def together(cohort: Cohort, steps: str = "all") -> Cohort:
    """The clients of a round as one, the server, that has the images of all registered clients and takes `all` steps,
    or those of the `client` that takes most."""
    batches = getattr(cohort.batches, "pooled", None)
    if batches is None:  # batches made by hand: one client's after the other's
        in_order = sorted(range(len(cohort)), key=cohort.ids.__getitem__)

        def batches(n: int) -> Iterator[tuple[Tensor, Tensor]]:
            return (batch for m in in_order for batch in islice(cohort.batches(m), int(cohort.steps[m])))

    taken = cohort.steps.sum() if steps == "all" or not len(cohort) else cohort.steps.max()
    sums = {"num_examples": cohort.num_examples.sum()[None], "steps": taken[None]}
    return Cohort([GLOBAL], torch.ones(1, dtype=torch.int64), **sums, batches=batches)


# AllSmall: the model that the weakest client can hold, for everybody (FedRA, Sec. 4.1)


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


# Exclusive learning: only the clients that can hold the whole model take part (DepthFL, Sec. 4)


def exclusive(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy") -> Method:
    """FedAvg of the adapters over the clients with L_n = L; the data of all others is left out.

    Not applicable where no client can ever hold the whole model. A round in which none of them takes part
    changes nothing.
    """
    L = setup.backbone.num_layers
    if setup.scenario.capacities.max() < L:
        raise NotApplicable(f"no client can hold all {L} layers")
    return layerwise(setup, "prefix", aggregator, objective, depth_of=lambda L_n: L if L_n >= L else None)


# Head only: a linear probe of the frozen backbone, the control that shows what the adapters add


def head_only(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy") -> Method:
    """Every client trains the classifier alone, on the full frozen depth whatever its capacity: a control, not a
    method."""
    L = setup.backbone.num_layers
    return layerwise(setup, "prefix", aggregator, objective, adapt=False, depth_of=lambda L_n: L)


def ova_lp(setup: Setup, aggregator: Ref = "weighted_mean", objective: Ref = "one_vs_all") -> Method:
    """head_only with one binary classifier for each class against the rest, so that a client without a class does not
    push its logit against the others': a one-vs-all linear probe.

    The model answers with the class of the largest logit. Known of the paper are the frozen encoder, the one-vs-all
    head and a procedure of two stages; ours: one stage, the binary losses are added up over classes, and clients are
    weighted by examples.
    """
    L = setup.backbone.num_layers
    return layerwise(setup, "prefix", aggregator, objective, adapt=False, depth_of=lambda L_n: L)


# Local only: no federation. Every client trains by itself, the control that shows what sharing is worth to it


def local_only(setup: Setup, objective: Ref = "cross_entropy") -> Method:
    """Every client trains the adapters of its first L_n layers and a classifier on its own images, in the rounds it
    takes part in, and goes on from where it stopped: nothing but the frozen layers is ever sent. A control, not a
    method.

    The model of a client is its own, as deep as it was when it last trained; use `evaluation: {by: client}`. There is
    no global model: what answers in its place, and for a client that never came back, is the start, the adapters as
    they were drawn and a classifier that nobody has trained, which is no better than chance. A client whose work is
    lost has not kept it. Not applicable under FedDyn, which corrects a global model.
    """
    refuse_feddyn(setup, "corrects one global model, and local_only has none")
    mean_of_nothing = personal_params.remembering(weighted_mean)  # for nothing is sent
    return personal_params.answering(layerwise(setup, "prefix", mean_of_nothing, objective, keeps=("*",)))


@hookimpl
def fedbench_register_methods(register):
    register(
        "alllarge",
        alllarge,
        ignores=["capacities", "ranks", "widths"],
        role="ceiling",
        paper="Su et al., FedRA, ECCV 2024, arXiv 2311.11227, Sec. 4.1",
    )
    register("pooled", pooled, ignores=["capacities", "ranks", "widths"], role="ceiling", later=["steps"])
    register("pooled_probe", pooled_probe, ignores=["capacities", "ranks", "widths", "adapter"], role="control")
    register(
        "allsmall",
        allsmall,
        ignores=["ranks", "widths"],
        role="floor",
        paper="Su et al., FedRA, ECCV 2024, arXiv 2311.11227, Sec. 4.1",
    )
    register(
        "exclusive",
        exclusive,
        ignores=["ranks", "widths"],
        role="control",
        paper="Kim et al., DepthFL, ICLR 2023, Sec. 4",
    )
    register("head_only", head_only, ignores=["capacities", "ranks", "widths", "adapter"], role="control")
    register(
        "ova_lp",
        ova_lp,
        ignores=["capacities", "ranks", "widths", "adapter"],
        role="control",
        paper="Park et al., OvA-LP, 2025, arXiv 2511.05028",
    )
    register("local_only", local_only, ignores=["ranks", "widths"], role="control")
