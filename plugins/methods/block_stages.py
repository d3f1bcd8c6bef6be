"""Blocks of layers in turn, the trained ones frozen: the plainest training in stages, which is ours."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families.deployed_submodel import deepest
from fedbench.families.layerwise import full_depth, head_at_end, layerwise
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models.backbone import Blocks, in_layers
from fedbench.models.globalmodel import GlobalModel
from fedbench.options import Count, judged
from fedbench.types import Cohort, Plan, Size, Uploads

DEPTH = "depth"  # in the state's memory: how many layers the model has so far


@judged("block_stages")
def block_stages(
    setup: Setup, blocks: Count = 4, aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy"
) -> Method:
    """The layers are cut into blocks, and every block has an equal share of the rounds: clients train its adapters and
    the classifier behind it, upon the blocks below, which are frozen; those above are not there yet.

    With B blocks of L layers, block b has the layers floor(b L / B) + 1 to floor((b + 1) L / B), and round t of T is in
    stage floor(t B / T). So a client keeps the activations of one block, whatever the depth; it takes part if it can
    train the largest block, and holds the weights of all layers so far. The model is that of the last stage, which runs
    whole or not at all. Not applicable where no client can ever train the largest block.

    Ours, after SmartFreeze (Wu et al., arXiv 2408.09101) and ProFL (arXiv 2404.13349), of which the abstracts were
    read: what decides there when a block has converged, the output modules that stand for the blocks above, the stage
    in which models shrink, and who is selected are not known here, so that it bears neither name.
    """
    L, T = in_layers(setup.backbone).num_layers, setup.train["rounds"]
    in_turn = BlocksInTurn(min(blocks, L), L, T)
    largest = max(high - low for low, high in map(in_turn.bounds, range(in_turn.B)))
    if setup.scenario.capacities.max() < largest:
        raise NotApplicable(f"no client can train a block of {largest} layers: take more blocks")
    method_aggregate = setup.component("aggregator", aggregator)

    @functools.wraps(method_aggregate)
    def aggregate(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        new: State = method_aggregate(state, uploads, plan, cohort)
        return {**new, "memory": {**new["memory"], DEPTH: int(plan.M.sum(1).max())}}

    return layerwise(
        setup,
        in_turn,
        aggregate,
        objective,
        depth_of=lambda L_n: L_n if L_n >= largest else None,
        predict=so_far,
        at=deepest,
        sizes=lambda model: [Size(L)],  # what it takes to run it; `depth_of` says who trains
    )


@dataclass(frozen=True)
class BlocksInTurn:
    """An allocation: in round t all layers up to the block of its stage, of which that block is trained.

    Attributes:
        B: How many blocks there are.
        L: How many layers.
        T: How many rounds.
    """

    B: int
    L: int
    T: int
    exact = False  # a client may train fewer layers than it could
    name = "block_stages"

    def bounds(self, b: int) -> tuple[int, int]:
        """Return (first, end) of the layers of block b, from 0."""
        return b * self.L // self.B, (b + 1) * self.L // self.B

    def stage(self, t: int) -> int:
        """Return the block that is trained in round t."""
        return min(t, self.T - 1) * self.B // self.T  # after the last round as in it

    def __call__(self, capacities: Tensor, num_layers: int, round: int) -> Plan:
        """Return M and what of it is trained, the same for all clients."""
        low, high = self.bounds(self.stage(round))
        j = torch.arange(num_layers)
        held, trained = (mask.repeat(len(capacities), 1) for mask in (j < high, (low <= j) & (j < high)))
        return Plan(held, [], trained=trained)


def so_far(model: Blocks, state: State) -> Predict:
    """The layers that the model has in its stage, then the head."""
    depth = state["memory"].get(DEPTH, model.num_layers)
    if depth == model.num_layers:
        return full_depth(model, state)
    return GlobalModel(model, range(depth), head_at_end(depth))


@hookimpl
def fedbench_register_methods(register):
    register(
        "block_stages",
        block_stages,
        ignores=["ranks", "widths"],
        family="Depth",
        paper="Wu et al., after SmartFreeze, 2024, arXiv 2408.09101",
    )
