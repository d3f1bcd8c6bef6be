"""All clients of a group at once through the shared frozen layers, group after group; equal to the sequential
engine, faster.

At layer j the rows of the clients with M[n, j] are gathered; each client's adapters are one row of a stacked
tensor, which is also what the optimiser steps, so that neither momentum nor weight decay ever reaches a layer
that a client does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.engine import shortcuts
from fedbench.engine.groups import Part, grouped, joined, merged
from fedbench.engine.leaves import Leaves, clip_each, others_frozen
from fedbench.engine.passes import Batch, halved, inputs_of, passes
from fedbench.engine.pulling import Pulling
from fedbench.engine.replay import Replayed
from fedbench.engine.team import ALONE, Team
from fedbench.models.adapter import Stack, stacked
from fedbench.models.additions import FROZEN, load_additions
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import Terms
from fedbench.models.optimizer import make_optimizer
from fedbench.models.places import places
from fedbench.seeding import generator
from fedbench.types import Cohort, Job, Plan, Uploads

REPLAYED_BYTES = 2**32  # of saved activations at most: larger steps are bound by the GPU, not by launching kernels


def train(model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job, team: Team = ALONE) -> Uploads:
    """Let every client of the cohort tune its own copy of r_j, j in S_n, and of its classifiers. See
    `sequential.train`.

    team: the processes that compute this cell, each some of the groups.
    """
    load_additions(model, start.get(FROZEN))
    held = (plan.M.sum(1) * cohort.steps).tolist()
    sizes, most = passes(model, plan, cohort, job)
    groups = grouped(held, sizes, most) or [[]]
    with shortcuts.fast(model):
        parts = team.share(
            [sum(held[n] for n in group) for group in groups],
            lambda g: train_within(model, start, plan, cohort, job, groups[g], sizes),
        )
    up = joined(parts, groups, plan, cohort)
    return replace(up, coordinates=Terms(model, plan).of_uploads(dict(places({"r": up.r, "shared": up.shared}))))


def train_within(
    model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job, group: Sequence[int], sizes: list[int]
) -> Part:
    """`train_group`, and where a GPU's memory does not suffice for it, one half of its clients after the other."""
    try:
        return train_group(model, start, plan, cohort, job, group, sum(sizes[n] for n in group))
    except torch.OutOfMemoryError:
        if len(group) == 1:
            raise
    halves = halved(model, group, sizes)  # out here, where no traceback holds the tensors of what was tried
    return merged([train_within(model, start, plan, cohort, job, half, sizes) for half in halves], halves, plan)


def train_group(
    model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job, group: Sequence[int], size: int
) -> Part:
    """All steps of the clients of one group. size: what they add up to in a pass, see `passes`."""
    began = time.perf_counter()
    leaves = Leaves(model, start, plan, group)
    draws = {n: generator(job.seed, job.t, cohort.ids[n], "dropout", model.device) for n in group}
    take = stepping(model, leaves, plan, job, draws)
    if model.device.type == "cuda" and size <= REPLAYED_BYTES:
        take = Replayed(take, draws.values())
    batches = {n: iter(inputs_of(cohort)(n)) for n in group}
    losses: dict[int, list[Tensor]] = {n: [] for n in group}
    for step in range(max((int(cohort.steps[n]) for n in group), default=0)):
        now = {n: next(batches[n], None) for n in group if step < int(cohort.steps[n])}
        inputs = {n: batch for n, batch in now.items() if batch is not None}
        if not inputs:
            break
        for n, loss in zip(inputs, take(inputs), strict=True):
            losses[n].append(loss)
    work = (plan.M[list(group)].sum(1) * cohort.steps[list(group)]).double()
    return leaves.part() | {
        "loss": means(list(losses.values())),
        "seconds": (time.perf_counter() - began) * work / work.sum().clamp(min=1),  # shared out by layers x steps
    }


def means(losses: Sequence[Sequence[Tensor]]) -> Tensor:
    """(n,) float64 on the CPU: the mean of each client's losses, 0 without one. Waits for a GPU once."""
    each = [sum(own[1:], own[0]) / len(own) for own in losses if own]
    found = iter(torch.stack(each).double().tolist() if each else [])
    return torch.tensor([next(found) if own else 0.0 for own in losses], dtype=torch.float64)


def stepping(
    model: Blocks, leaves: Leaves, plan: Plan, job: Job, draws: dict[int, torch.Generator]
) -> Callable[[dict[int, Batch]], Tensor]:
    """A function that takes one optimiser step for every client that has a batch, and returns their losses."""
    trained = [tensor for tensor, _, _ in leaves if tensor.numel()]
    optimizer = make_optimizer(trained, job.optimizer, fused=True) if trained else None
    pull = Pulling(model, leaves, job.pull, plan) if job.pull else None

    def step(inputs: dict[int, Batch]) -> Tensor:
        logits = forward(model, leaves, plan, {n: x for n, (x, _) in inputs.items()}, draws)
        for o in (o for own in logits.values() for o in own if o.requires_grad):
            o.retain_grad()  # which tells what the objective used
        each = torch.stack([job.objective(logits[n], y, job.t) for n, (_, y) in inputs.items()])
        if optimizer is None or not each.requires_grad:  # nobody here trains anything in this round
            return each.detach()
        optimizer.zero_grad()
        each.sum().backward()  # clients share no trained tensor: the sum's gradient is each one's own
        if pull is not None:
            pull.add()
        leaves.mask()
        if job.clip is not None:
            clip_each(leaves, job.clip)
        with others_frozen(leaves, plan, logits, pulled=pull.places if pull else ()):
            optimizer.step()
        leaves.restore()
        return each.detach()

    return step


def forward(
    model: Blocks, leaves: Leaves, plan: Plan, x: dict[int, Tensor], draws: dict[int, torch.Generator]
) -> dict[int, list[Tensor]]:
    """The logits of every exit of every client. x: one batch (B_n, 3, H, W) for each of some clients."""
    clients, sizes = list(x), [len(part) for part in x.values()]
    with stacked(model, Stack(leaves.outside(clients), sizes, [draws[n] for n in clients])):
        tokens = dict(zip(clients, model.embed(torch.cat(list(x.values()))).split(sizes), strict=True))
    depth, deepest = dict.fromkeys(clients, 0), {n: int(plan.M[n].sum()) for n in clients}
    lowest = {n: leaves.lowest(n) if leaves.fixed else 0 for n in clients}
    logits: dict[int, dict[str, Tensor]] = {n: {} for n in clients}

    def read(n: int) -> None:
        here = [exit.classifier for exit in plan.exits[n] if exit.depth == depth[n]]
        if here:
            with stacked(model, Stack(leaves.read_out(n), [len(tokens[n])], [draws[n]])):
                features = model.features(tokens[n])
            logits[n] |= {name: nn.functional.linear(features, *leaves.classifier(name, n)) for name in here}

    for n in clients:
        read(n)
    for j in range(model.num_layers):
        held = [n for n in clients if plan.M[n, j]]
        ending = [n for n in held if depth[n] + 1 == deepest[n]] if shortcuts.reads_class_token(model, j) else []
        for some, is_last in parts_of(held, ending, [n for n in held if lowest[n] > j]):
            if some:
                out = layer(model, leaves, j, some, [tokens[n] for n in some], [draws[n] for n in some], is_last)
                tokens |= dict(zip(some, out, strict=True))
        for n in held:
            depth[n] += 1
            read(n)
    return {n: [logits[n][exit.classifier] for exit in plan.exits[n]] for n in clients}


def parts_of(held: list[int], ending: list[int], asleep: list[int]) -> Iterator[tuple[list[int], bool]]:
    """(clients, whether it is their last layer) of the passes that a layer takes: `ending` clients read their class
    token alone; of those `asleep`, who train nothing up to here, nothing is kept for a backward pass."""
    for sleeps in (False, True) if asleep else (False,):
        some = [n for n in held if (n in asleep) == sleeps] if asleep else held
        yield [n for n in some if n not in ending], False
        yield [n for n in some if n in ending], True


def layer(
    model: Blocks,
    leaves: Leaves,
    j: int,
    clients: Sequence[int],
    tokens: Sequence[Tensor],
    draws: Sequence[torch.Generator],
    is_last: bool,
) -> Sequence[Tensor]:
    """Layer j for clients that hold it, each with its own adapters. tokens: (B_n, T, D) for each of them.

    is_last: nothing but the class token is read afterwards, and (B_n, 1, D) is enough.
    """
    block, values, sizes = model.blocks[j], leaves.layer(j, clients), [len(part) for part in tokens]
    stack = Stack(values, sizes, draws, tokens=tokens[0].shape[1] if is_last else None)
    if stack.covers(block):
        with stacked(block, stack):
            x = torch.cat(list(tokens)) if len(tokens) > 1 else tokens[0]
            return (shortcuts.last_layer(block, x) if is_last else shortcuts.run(block, x, stack)).split(sizes)
    return [  # an adapter that cannot be stacked: exact all the same, client by client
        functional_call(block, {name: value[i] for name, value in values.items()}, (part,))
        for i, part in enumerate(tokens)
    ]
