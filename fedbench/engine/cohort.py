"""All clients of a round at once through the shared frozen layers; equal to the sequential engine, faster on
many small clients.

At layer j the rows of the clients with M[n, j] are gathered; each client's adapters are one row of a stacked
tensor, which is also what the optimiser steps, so that neither momentum nor weight decay ever reaches a layer
that a client does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.adapter import Stack, stacked
from fedbench.aggregation import shared_holders
from fedbench.backbone import Blocks
from fedbench.engine import classtoken
from fedbench.engine.sequential import make_optimizer
from fedbench.seeding import generator
from fedbench.types import Cohort, Job, Plan, Uploads


class Leaves:
    """The trained tensors of a round: of every layer, and of what is shared, one row for each client that holds it."""

    def __init__(self, model: Blocks, start: dict[str, Any], plan: Plan) -> None:
        self.layers = [
            _rows(model.r(j), start["r"][j], plan.M[:, j].nonzero().flatten().tolist()) for j in range(model.num_layers)
        ]
        self.layer_holders = [plan.M[:, j].nonzero().flatten().tolist() for j in range(model.num_layers)]
        holders = {name: shared_holders(plan, name).nonzero().flatten().tolist() for name in start["shared"]}
        self.shared_holders = holders
        self.shared = {
            name: _rows({name: p}, start["shared"], holders[name])[name] for name, p in model.shared().items()
        }

    def __iter__(self) -> Iterator[tuple[Tensor, list[int]]]:
        """Every tensor with the clients its rows belong to."""
        for tensors, holders in zip(self.layers, self.layer_holders, strict=True):
            yield from ((tensor, holders) for tensor in tensors.values())
        yield from ((tensor, self.shared_holders[name]) for name, tensor in self.shared.items())

    def layer(self, j: int, clients: Sequence[int]) -> dict[str, Tensor]:
        """Layer j's tensors, the rows of these clients."""
        return {name: _pick(tensor, self.layer_holders[j], clients) for name, tensor in self.layers[j].items()}

    def classifier(self, name: str, client: int) -> tuple[Tensor, Tensor]:
        """Weight (C, D) and bias (C,) of one client's classifier."""
        row = self.shared_holders[f"{name}.weight"].index(client)
        return self.shared[f"{name}.weight"][row], self.shared[f"{name}.bias"][row]

    def outside(self, clients: Sequence[int]) -> dict[str, Tensor]:
        """The adapters that stand in no layer, by their names in the model."""
        return {
            name: _pick(tensor, self.shared_holders[name], clients)
            for name, tensor in self.shared.items()
            if name.startswith("model.")
        }


def train(model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job) -> Uploads:
    """Let every client of the cohort tune its own copy of r_j, j in S_n, and of its classifiers. See
    `sequential.train`."""
    began, N = time.perf_counter(), len(cohort)
    leaves = Leaves(model, start, plan)
    trained = [tensor for tensor, _ in leaves if tensor.numel()]
    optimizer = make_optimizer(trained, job.optimizer) if trained else None
    batches = [iter(cohort.batches(n)) for n in range(N)]
    draws = [generator(job.seed, job.t, client, "dropout") for client in cohort.ids]
    losses: list[list[float]] = [[] for _ in range(N)]
    for step in range(int(cohort.steps.max()) if N else 0):
        active, inputs = [], []
        for n in range(N):
            batch = next(batches[n], None) if step < int(cohort.steps[n]) else None
            if batch is not None:
                active.append(n)
                inputs.append(batch)
        if not active:
            break
        logits = forward(model, leaves, plan, active, [x for x, _ in inputs], draws)
        each = torch.stack([job.objective(o, y, job.t) for o, (_, y) in zip(logits, inputs, strict=True)])
        optimizer.zero_grad()
        each.sum().backward()  # clients share no trained tensor: the sum's gradient is each one's own
        if job.clip is not None:
            clip_each(leaves, N, job.clip)
        with finished_clients_frozen(leaves, active):
            optimizer.step()
        for n, loss in zip(active, each.tolist(), strict=True):
            losses[n].append(loss)
    seconds = (time.perf_counter() - began) * plan.M.sum(1) / max(int(plan.M.sum()), 1)  # shared out by layers held
    return Uploads(
        r=[{name: tensor.detach() for name, tensor in layer.items()} for layer in leaves.layers],
        shared={name: tensor.detach() for name, tensor in leaves.shared.items()},
        arrived=torch.ones(N, dtype=torch.bool),
        loss=torch.tensor([sum(own) / max(len(own), 1) for own in losses], dtype=torch.float64),
        steps=cohort.steps.clone(),
        seconds=seconds.double(),
    )


def forward(
    model: Blocks,
    leaves: Leaves,
    plan: Plan,
    clients: Sequence[int],
    x: Sequence[Tensor],
    draws: Sequence[torch.Generator],
) -> list[list[Tensor]]:
    """The logits of every exit of every client. x: one batch (B_n, 3, H, W) for each of `clients`."""
    sizes = [len(part) for part in x]
    with stacked(model, Stack(leaves.outside(clients), sizes, [draws[n] for n in clients])):
        tokens = dict(zip(clients, model.embed(torch.cat(list(x))).split(sizes), strict=True))
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
        holders = [n for n in clients if plan.M[n, j]]
        ending = [n for n in holders if depth[n] + 1 == deepest[n]] if classtoken.applies(model, j) else []
        for group, is_last in (([n for n in holders if n not in ending], False), (ending, True)):
            if group:
                out = layer(model, leaves, j, group, [tokens[n] for n in group], draws, is_last)
                tokens |= dict(zip(group, out, strict=True))
        for n in holders:
            depth[n] += 1
            read(n)
    return [[logits[n][exit.classifier] for exit in plan.exits[n]] for n in clients]


def layer(
    model: Blocks,
    leaves: Leaves,
    j: int,
    holders: Sequence[int],
    tokens: Sequence[Tensor],
    draws: Sequence[torch.Generator],
    is_last: bool,
) -> Sequence[Tensor]:
    """Layer j for its holders, each with its own adapters. tokens: (B_n, T, D) for each holder.

    is_last: nothing but the class token is read afterwards, and (B_n, 1, D) is enough.
    """
    block, values, sizes = model.blocks[j], leaves.layer(j, holders), [len(part) for part in tokens]
    stack = Stack(values, sizes, [draws[n] for n in holders], tokens=tokens[0].shape[1] if is_last else None)
    if stack.covers(block):
        with stacked(block, stack):
            x = torch.cat(list(tokens))
            return (classtoken.last_layer(block, x) if is_last else block(x)).split(sizes)
    return [  # an adapter that cannot be stacked: exact all the same, client by client
        functional_call(block, {name: value[i] for name, value in values.items()}, (part,))
        for i, part in enumerate(tokens)
    ]


def clip_each(leaves: Leaves, N: int, most: float) -> None:
    """Scale each client's gradient, over all its layers and classifiers, to a norm of at most `most`."""
    squares: list[Tensor] = [torch.zeros(())] * N
    rows = [(tensor.grad, holders) for tensor, holders in leaves if tensor.grad is not None]
    for grad, holders in rows:
        for n, square in zip(holders, grad.flatten(1).square().sum(1), strict=True):
            squares[n] = squares[n] + square
    scale = (most / (torch.stack([square.to(rows[0][0]) for square in squares]).sqrt() + 1e-6)).clamp(max=1.0)
    for grad, holders in rows:
        grad.mul_(scale[holders].view(-1, *[1] * (grad.dim() - 1)))


@contextmanager
def finished_clients_frozen(leaves: Leaves, active: Sequence[int]) -> Iterator[None]:
    """Around an optimiser step: momentum and weight decay do not move a client that has taken all its steps."""
    kept = []
    for tensor, holders in leaves:
        done = [row for row, n in enumerate(holders) if n not in active]
        if done:
            kept.append((tensor, done, tensor.detach()[done].clone()))
    yield
    with torch.no_grad():
        for tensor, done, values in kept:
            tensor[done] = values


def _rows(parameters: dict[str, nn.Parameter], values: dict[str, Tensor], holders: Sequence[int]) -> dict[str, Tensor]:
    """One trainable row for each holder, from values that are shared by all or already one row each."""
    rows = {}
    for name, parameter in parameters.items():
        value = values[name]
        if value.dim() == parameter.dim():
            value = value.expand(len(holders), *value.shape)
        rows[name] = value.detach().clone().contiguous().requires_grad_()
    return rows


def _pick(tensor: Tensor, holders: Sequence[int], clients: Sequence[int]) -> Tensor:
    return tensor if list(holders) == list(clients) else tensor[[holders.index(n) for n in clients]]
