"""All clients of a group at once through the shared frozen layers, group after group; equal to the sequential
engine, faster.

At layer j the rows of the clients with M[n, j] are gathered; each client's adapters are one row of a stacked
tensor, which is also what the optimiser steps, so that neither momentum nor weight decay ever reaches a layer
that a client does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.adapter import Stack, stacked
from fedbench.backbone import Blocks
from fedbench.cost import activations
from fedbench.engine import shortcuts
from fedbench.engine.graph import Replayed
from fedbench.engine.groups import ROWS, Part, grouped, holders, joined
from fedbench.engine.sequential import make_optimizer
from fedbench.engine.team import ALONE, Team
from fedbench.seeding import generator
from fedbench.types import Cohort, Job, Plan, Uploads

Batch = tuple[Tensor, Tensor]
OF_FREE_MEMORY = 0.6  # of a GPU may the saved activations of a pass take; workspaces and gradients need the rest

REPLAYED_BYTES = 2**32  # of saved activations at most: larger steps are bound by the GPU, not by launching kernels


class Leaves:
    """The trained tensors of a group: of every layer, and of what is shared, one row for each client that holds it."""

    def __init__(self, model: Blocks, start: dict[str, Any], plan: Plan, group: Sequence[int]) -> None:
        trained = [(f"r/{j}", model.r(j), start["r"][j]) for j in range(model.num_layers)]
        trained += [(f"shared/{name}", {name: p}, start["shared"]) for name, p in model.shared().items()]
        self.holders = {place: holders(plan, place, group) for place, _, _ in trained}
        self.at = {
            place: _rows(parameters, values, self.holders[place], holders(plan, place))
            for place, parameters, values in trained
        }

    def __iter__(self) -> Iterator[tuple[Tensor, list[int]]]:
        """Every tensor with the clients its rows belong to."""
        for place, tensors in self.at.items():
            yield from ((tensor, self.holders[place]) for tensor in tensors.values())

    def layer(self, j: int, clients: Sequence[int]) -> dict[str, Tensor]:
        """Layer j's tensors, the rows of these clients."""
        place = f"r/{j}"
        return {name: _pick(tensor, self.holders[place], clients) for name, tensor in self.at[place].items()}

    def classifier(self, name: str, client: int) -> tuple[Tensor, Tensor]:
        """Weight (C, D) and bias (C,) of one client's classifier."""
        row = self.holders[f"shared/{name}.weight"].index(client)
        return tuple(self.at[f"shared/{name}.{part}"][f"{name}.{part}"][row] for part in ("weight", "bias"))

    def outside(self, clients: Sequence[int]) -> dict[str, Tensor]:
        """The adapters that stand in no layer, by their names in the model."""
        return {
            name: _pick(tensor, self.holders[place], clients)
            for place, tensors in self.at.items()
            for name, tensor in tensors.items()
            if place.startswith("shared/model.")
        }

    def part(self) -> Part:
        """The tensors as they are now, each at its place."""
        layers = {f"{place}/{name}": t for place, ts in self.at.items() for name, t in ts.items() if place[0] == "r"}
        shared = {place: t for place, ts in self.at.items() for t in ts.values() if place[0] == "s"}
        return {place: tensor.detach() for place, tensor in (layers | shared).items()}


def train(model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job, team: Team = ALONE) -> Uploads:
    """Let every client of the cohort tune its own copy of r_j, j in S_n, and of its classifiers. See
    `sequential.train`.

    team: the processes that compute this cell, each some of the groups.
    """
    held = (plan.M.sum(1) * cohort.steps).tolist()
    sizes, most = passes(model, plan, cohort, job)
    groups = grouped(held, sizes, most) or [[]]
    with shortcuts.fast(model):
        parts = team.share(
            [sum(held[n] for n in group) for group in groups],
            lambda g: train_group(model, start, plan, cohort, job, groups[g], sum(sizes[n] for n in groups[g])),
        )
    return joined(parts, groups, plan, cohort.steps)


def passes(model: Blocks, plan: Plan, cohort: Cohort, job: Job) -> tuple[list[int], int]:
    """What each client's first batch, its largest, adds to a pass, and how much of it a pass may hold: token rows
    on a CPU, bytes of saved activations on a GPU."""
    sizes, some = [], None
    for n in range(len(cohort)):
        x, y = next(iter(cohort.batches(n)), (None, ()))
        sizes.append(len(y))
        some = x[:1] if x is not None else some
    if some is None:
        return sizes, ROWS
    if model.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(model.device)
        depths = zip(sizes, plan.M.sum(1).tolist(), plan.exits, strict=True)
        each = [B * activations(model, range(d), exits, job.objective, some.shape[-1]) for B, d, exits in depths]
        free += torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
        return each, max(1, int(OF_FREE_MEMORY * free))
    with torch.no_grad():
        tokens = model.embed(some).shape[1]  # images, or their embeddings
    return [size * tokens for size in sizes], ROWS


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
    batches = {n: iter(cohort.batches(n)) for n in group}
    losses: dict[int, list[Tensor]] = {n: [] for n in group}
    for step in range(max((int(cohort.steps[n]) for n in group), default=0)):
        now = {n: next(batches[n], None) for n in group if step < int(cohort.steps[n])}
        inputs = {n: batch for n, batch in now.items() if batch is not None}
        if not inputs:
            break
        for n, loss in zip(inputs, take(inputs), strict=True):
            losses[n].append(loss)
    layers = plan.M[list(group)].sum(1).double()
    return leaves.part() | {
        "loss": torch.tensor([sum(own) / max(len(own), 1) for own in losses.values()], dtype=torch.float64),
        "seconds": (time.perf_counter() - began) * layers / layers.sum().clamp(min=1),  # shared out by layers held
    }


def stepping(
    model: Blocks, leaves: Leaves, plan: Plan, job: Job, draws: dict[int, torch.Generator]
) -> Callable[[dict[int, Batch]], Tensor]:
    """A function that takes one optimiser step for every client that has a batch, and returns their losses."""
    trained = [tensor for tensor, _ in leaves if tensor.numel()]
    optimizer = make_optimizer(trained, job.optimizer, fused=True) if trained else None

    def step(inputs: dict[int, Batch]) -> Tensor:
        logits = forward(model, leaves, plan, {n: x for n, (x, _) in inputs.items()}, draws)
        each = torch.stack([job.objective(logits[n], y, job.t) for n, (_, y) in inputs.items()])
        optimizer.zero_grad()
        each.sum().backward()  # clients share no trained tensor: the sum's gradient is each one's own
        if job.clip is not None:
            clip_each(leaves, job.clip)
        with finished_clients_frozen(leaves, inputs):
            optimizer.step()
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
    logits: dict[int, dict[str, Tensor]] = {n: {} for n in clients}

    def read(n: int) -> None:
        here = [exit.classifier for exit in plan.exits[n] if exit.depth == depth[n]]
        if here:
            features = model.features(tokens[n])
            logits[n] |= {name: nn.functional.linear(features, *leaves.classifier(name, n)) for name in here}

    for n in clients:
        read(n)
    for j in range(model.num_layers):
        held = [n for n in clients if plan.M[n, j]]
        ending = [n for n in held if depth[n] + 1 == deepest[n]] if shortcuts.reads_class_token(model, j) else []
        for some, is_last in (([n for n in held if n not in ending], False), (ending, True)):
            if some:
                out = layer(model, leaves, j, some, [tokens[n] for n in some], [draws[n] for n in some], is_last)
                tokens |= dict(zip(some, out, strict=True))
        for n in held:
            depth[n] += 1
            read(n)
    return {n: [logits[n][exit.classifier] for exit in plan.exits[n]] for n in clients}


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
            return (shortcuts.last_layer(block, x) if is_last else shortcuts.run(block, x)).split(sizes)
    return [  # an adapter that cannot be stacked: exact all the same, client by client
        functional_call(block, {name: value[i] for name, value in values.items()}, (part,))
        for i, part in enumerate(tokens)
    ]


def clip_each(leaves: Leaves, most: float) -> None:
    """Scale each client's gradient, over all its layers and classifiers, to a norm of at most `most`."""
    rows: dict[int, list[Tensor]] = {}
    for tensor, clients in leaves:
        if tensor.grad is not None:
            for n, row in zip(clients, tensor.grad, strict=True):
                rows.setdefault(n, []).append(row)
    for own in rows.values():
        norm = torch.stack(torch._foreach_norm(own)).norm()
        torch._foreach_mul_(own, (most / (norm + 1e-6)).clamp(max=1.0))


@contextmanager
def finished_clients_frozen(leaves: Leaves, active: dict[int, Batch]) -> Iterator[None]:
    """Around an optimiser step: momentum and weight decay do not move a client that has taken all its steps."""
    done = [tensor.detach()[row] for tensor, clients in leaves for row, n in enumerate(clients) if n not in active]
    kept = [row.clone() for row in done]
    yield
    for row, values in zip(done, kept, strict=True):
        row.copy_(values)


def _rows(
    parameters: dict[str, nn.Parameter], values: dict[str, Tensor], clients: Sequence[int], of: Sequence[int]
) -> dict[str, Tensor]:
    """One trainable row for each of `clients`, from values that are shared by all or one row for each client in
    `of`."""
    rows = {}
    for name, parameter in parameters.items():
        value = values[name]
        if value.dim() == parameter.dim():
            value = value.expand(len(clients), *value.shape)
        else:
            value = _pick(value, of, clients)
        rows[name] = value.detach().clone().contiguous().requires_grad_()
    return rows


def _pick(tensor: Tensor, holders: Sequence[int], clients: Sequence[int]) -> Tensor:
    if list(holders) == list(clients):
        return tensor
    rows = tensor.unbind()  # no index is copied to a GPU
    return torch.stack([rows[holders.index(n)] for n in clients]) if clients else tensor[:0]
