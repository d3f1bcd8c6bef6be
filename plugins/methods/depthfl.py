"""DepthFL: the first L_n layers, classifiers on the way, and mutual distillation between them (Kim et al., ICLR
2023)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from torch import Tensor

from fedbench import hookimpl
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import HEAD, Blocks
from fedbench.models.globalmodel import GlobalModel
from fedbench.models.tokens import mean_of_answers
from fedbench.options import Count, judged
from fedbench.types import Cohort, Exit, Plan, Uploads


@judged("depthfl")
def depthfl(
    setup: Setup,
    first_exit: Count = 3,
    every: Count = 3,
    head: Literal["where_no_exit", "always"] = "where_no_exit",
    answer: Literal["ensemble", "last"] = "ensemble",
    allocation: Ref = "prefix",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "mutual_kl",
) -> Method:
    """Clients train S_n = {1, ..., L_n} with a classifier after every third layer; the model answers with their mean.

    first_exit, every: after which layers (from 1) the exits stand; after the model's last layer only besides a head
    that is there `always`. head: a client's final head stands after its own last layer `where_no_exit` does, or
    `always`. answer: `ensemble`, the mean
    of all classifiers' logits, or `last`, the deepest one's; the other is reported too. Classifiers that no
    client has trained yet have no say in either. A client of depth d can run the first d layers with their classifiers
    (Section 4 scores the global model at every one): answers are as above.
    """
    L = setup.backbone.num_layers

    def exits_of(depth: int) -> list[Exit]:
        last = L if head == "always" else L - 1
        exits = [Exit(e, f"exit{e}") for e in range(first_exit, min(depth, last) + 1, every)]
        ends_in_exit = bool(exits) and exits[-1].depth == depth
        return exits if ends_in_exit and head == "where_no_exit" else [*exits, Exit(depth, HEAD)]

    return by_exits(setup, exits_of, answer, allocation, aggregator, objective)


def by_exits(
    setup: Setup,
    exits_of: Callable[[int], list[Exit]],
    answer: str,
    allocation: Ref,
    aggregator: Ref,
    objective: Ref,
    adapt: bool = True,
) -> Method:
    """Clients train a classifier at each of the exits of their depth, and the model answers with all that anybody has
    trained; see `depthfl`."""
    L, aggregate = setup.backbone.num_layers, setup.component("aggregator", aggregator)

    @functools.wraps(aggregate)
    def counted(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        trained = set(state["memory"].get("trained", []))
        for n in uploads.arrived.nonzero().flatten().tolist():
            trained |= {exit.classifier for exit in plan.exits[n]}
        new = aggregate(state, uploads, plan, cohort)
        return {**new, "memory": {**new["memory"], "trained": sorted(trained)}}

    def at(model: Blocks, state: State, layers: Sequence[int], exits: Sequence[Exit]) -> GlobalModel:
        trained = [exit for exit in exits if exit.classifier in state["memory"].get("trained", [])]
        return GlobalModel(model, layers, trained or exits, lambda logits: answers(logits, answer))

    def predict(model: Blocks, state: State) -> GlobalModel:
        return at(model, state, range(L), exits_of(L))

    return layerwise(setup, allocation, counted, objective, adapt=adapt, exits_of=exits_of, predict=predict, at=at)


def answers(logits: list[Tensor], first: str) -> Mapping[str, Tensor]:
    """The classifiers' mean and the deepest one's logits (B, C), the method's own answer first."""
    both = {"ensemble": mean_of_answers(logits), "last": logits[-1]}
    return {name: both[name] for name in sorted(both, key=lambda name: name != first)}


# A probe within capacity: DepthFL's exits without adapters


def exit_probe(
    setup: Setup,
    answer: Literal["ensemble", "last"] = "ensemble",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients run their first L_n layers frozen, and train a linear classifier after every depth that some client may
    hold, as far as they reach; no adapters. A control: what depth is worth within the clients' capacities.

    The model answers with the mean of the logits of all classifiers that anybody has trained, as DepthFL does
    (`answer: ensemble`), or with the deepest one's (`last`); the other is reported too. `head_only` is the probe that
    runs all layers on every client.
    """
    scenario, L = setup.scenario, setup.backbone.num_layers
    given = [(1, L)] if scenario.fitting else scenario.different("capacities")
    depths = sorted({min(d, L) for low, high in given for d in range(low, high + 1)})

    def exits_of(depth: int) -> list[Exit]:
        return [Exit(d, f"exit{d}") for d in depths if d <= depth] or [Exit(depth, f"exit{depth}")]

    return by_exits(setup, exits_of, answer, "prefix", aggregator, objective, adapt=False)


# The released code: (L_n - 1) // 3 exits, after blocks 4, 7, 10 and so on, a final head for every client, and the last
# head alone at test.
REFERENCE = {"first_exit": 4, "every": 3, "head": "always", "answer": "last"}


@hookimpl
def fedbench_register_methods(register):
    register(
        "depthfl",
        depthfl,
        ignores=["ranks", "widths"],
        look=0,
        profiles={"reference": REFERENCE},
        family="Depth",
        paper="Kim et al., DepthFL, ICLR 2023",
    )
    register("exit_probe", exit_probe, ignores=["ranks", "widths", "adapter"], role="control")
