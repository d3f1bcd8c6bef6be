"""All clients of a group at once through the shared frozen layers, group after group; equal to the sequential
engine, faster.

At layer j the rows of the clients with M[n, j] are gathered; each client's adapters are one row of a stacked
tensor, which is also what the optimiser steps, so that neither momentum nor weight decay ever reaches a layer
that a client does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pad

from fedbench.engine import sequential, shortcuts
from fedbench.engine.microbatching import Batch, Part, grouped, halved, inputs_of, joined, merged, passes
from fedbench.engine.process_group import ALONE, ProcessGroup
from fedbench.engine.readout import Answers, ReadOut, Tokens, losses_of
from fedbench.engine.stacked_params import Pulling, StackedParams
from fedbench.models.adapter import Stack, drops_out, stacked
from fedbench.models.backbone import Blocks, Plain, recomputed
from fedbench.models.draws import Draws
from fedbench.models.layered import PADDING
from fedbench.models.lowrank import FROZEN, Terms, load_additions
from fedbench.models.optimizer import make_optimizer
from fedbench.models.param_paths import at_classifier, holds, layer_of, name_of, places
from fedbench.models.tokens import counted
from fedbench.seeding import generator
from fedbench.types import Cohort, Job, Plan, Uploads


def train(
    model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job, team: ProcessGroup = ALONE
) -> Uploads:
    """Let every client of the cohort tune its own copy of r_j, j in S_n, and of its classifiers. See
    `sequential.train`.

    team: the processes that compute this cell, each some of the groups. What this engine cannot train is left to the
    other one, which is the same for every member.
    """
    if job.forward is not None or job.layers is not None or not can_train(model):
        return sequential.train(model, start, plan, cohort, job)
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


def can_train(model: Blocks | Plain) -> bool:
    """Whether the model runs layer after layer, and every module that is trained in it, classifiers apart, can use a
    `Stack`."""
    if not isinstance(model, Blocks) or type(model).forward is not Blocks.forward:
        return False
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    owners = {name.rpartition(".")[0] for name in trained if not name.startswith("classifiers.")}
    return all(hasattr(model.get_submodule(owner), "stack") for owner in owners)


def train_within(
    model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job, group: Sequence[int], sizes: list[int]
) -> Part:
    """`train_group`, and where a GPU's memory does not suffice for it, one half of its clients after the other."""
    try:
        return train_group(model, start, plan, cohort, job, group)
    except torch.OutOfMemoryError:
        if len(group) == 1:
            raise
    halves = halved(model, group, sizes)  # out here, where no traceback holds the tensors of what was tried
    return merged([train_within(model, start, plan, cohort, job, half, sizes) for half in halves], halves, plan)


def train_group(
    model: Blocks, start: dict[str, Any], plan: Plan, cohort: Cohort, job: Job, group: Sequence[int]
) -> Part:
    """All steps of the clients of one group."""
    began = time.perf_counter()
    leaves = StackedParams(model, start, plan, group)
    draws = {n: Draws(generator(job.seed, job.t, cohort.ids[n], "dropout", model.device)) for n in group}
    take = Step(model, leaves, plan, job, draws)
    inputs_from = inputs_of(model, plan, cohort)
    batches = {n: iter(inputs_from(n)) for n in group}
    losses: list[tuple[list[int], Tensor]] = []
    for step in range(max((int(cohort.steps[n]) for n in group), default=0)):
        now = {n: next(batches[n], None) for n in group if step < int(cohort.steps[n])}
        inputs = {n: batch for n, batch in now.items() if batch is not None}
        if not inputs:
            break
        losses.append((list(inputs), take(inputs)))
    work = (plan.M[list(group)].sum(1) * cohort.steps[list(group)]).double()
    return leaves.part() | {
        "loss": means(losses, group),
        "seconds": (time.perf_counter() - began) * work / work.sum().clamp(min=1),  # shared out by layers x steps
    }


def means(steps_taken: Sequence[tuple[Sequence[int], Tensor]], group: Sequence[int]) -> Tensor:
    """(n,) float64 on the CPU: the mean of each client's losses, 0 without one. Waits for a GPU once.

    steps_taken: of every step, the clients that took it and their losses.
    """
    losses: dict[int, list[Tensor]] = {n: [] for n in group}
    for clients, of_step in steps_taken:
        for n, loss in zip(clients, of_step.unbind(), strict=True):
            losses[n].append(loss)
    each = [sum(own[1:], own[0]) / len(own) for own in losses.values() if own]
    found = iter(torch.stack(each).double().tolist() if each else ())
    return torch.tensor([next(found) if own else 0.0 for own in losses.values()], dtype=torch.float64)


class Step:
    """Takes one optimiser step for every client that has a batch, and returns their losses."""

    def __init__(self, model: Blocks, leaves: StackedParams, plan: Plan, job: Job, draws: dict[int, Draws]) -> None:
        self.model, self.leaves, self.plan, self.job, self.draws = model, leaves, plan, job, draws
        trained = [tensor for tensor, _, _ in leaves if tensor.numel()]
        heads = [tensor for tensor, place, _ in leaves if tensor.numel() and at_classifier(place)]
        self.optimizer = make_optimizer(trained, job.optimizer, fused=True, heads=heads) if trained else None
        self.pull = Pulling(model, leaves, job.pull, plan) if job.pull else None

    def __call__(self, inputs: dict[int, Batch]) -> Tensor:
        leaves, plan, pull = self.leaves, self.plan, self.pull
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        losses, answers = self._gradients(inputs)
        if self.optimizer is None or not answers:
            return losses
        if pull is not None:
            pull.add()
        leaves.mask()
        if self.job.clip is not None:
            clip_each(leaves, self.job.clip)
        with others_frozen(leaves, plan, answers, pulled=pull.places if pull else ()):
            self.optimizer.step()
        leaves.restore()
        return losses

    def _gradients(self, inputs: dict[int, Batch]) -> tuple[Tensor, list[Answers]]:
        """The losses (n,) of the clients, whose gradients are added up micro-batch by micro-batch, and their answers to
        the first; no answers where nobody here trains anything in this round."""
        job, losses, answered = self.job, dict[int, Tensor](), list[Answers]()
        parts = {n: self.draws[n].parts(len(y), job.micro_batch) for n, (_, y) in inputs.items()}
        while rows := {n: part for n, own in parts.items() if (part := next(own, None)) is not None}:
            if job.micro_batch is None:
                x, y = ({n: batch[i] for n, batch in inputs.items()} for i in (0, 1))
            else:
                x, y = ({n: inputs[n][i][part] for n, part in rows.items()} for i in (0, 1))
            answers = forward(self.model, self.leaves, self.plan, x, self.draws, job.checkpointing)
            each = losses_of(job.objective, answers, y, job.t)
            shares = [counted(y[n]) / counted(inputs[n][1]) for n in rows]
            if min(shares) < 1:
                each = each * each.new_tensor(shares)
            if self.optimizer is not None and each.requires_grad:
                each.sum().backward()  # clients share no trained tensor: the sum's gradient is each one's own
                answered = answered or answers
            for n, loss in zip(rows, each.detach().unbind(), strict=True):
                losses[n] = losses[n] + loss if n in losses else loss
        return torch.stack(list(losses.values())), answered


def forward(
    model: Blocks,
    leaves: StackedParams,
    plan: Plan,
    x: dict[int, Tensor],
    draws: dict[int, Draws],
    recomputes: bool = False,
) -> list[Answers]:
    """The logits of every exit of every client.

    Args:
        x: one batch (B_n, 3, H, W), or of texts (B_n, T_n), for each of some clients.
        recomputes: whether layers are computed again in the backward pass.
    """
    clients, sizes = list(x), {n: len(part) for n, part in x.items()}
    whole, lengths = together(x)
    tokens, out = Tokens(sizes, lengths), ReadOut(model, leaves, plan, draws)
    of_each = [draws[n] for n in clients]
    outside = Stack(leaves.outside(clients), list(sizes.values()), of_each, lengths=tokens.lengths_of(clients))
    with stacked(model, outside):
        embedded, mask = model.embed(whole), model.mask(whole)
    if len(clients) == 1 and not drops_out(model):  # dropout draws its masks for a padded batch
        tokens.put(clients, *model.packed(embedded, mask))
    else:
        tokens.put(clients, embedded, mask)
    deepest = {n: sum(leaves.held[n]) for n in clients}
    if tokens.of(clients).dim() == 2:  # features, see `reads_features`
        out.read(tokens, deepest)
        return out.answers(sizes)
    depth, lowest = dict.fromkeys(clients, 0), {n: leaves.lowest(n) if leaves.fixed else 0 for n in clients}
    out.read(tokens, {n: 0 for n in clients if deepest[n]})
    for j in range(model.num_layers):
        held = [n for n in clients if leaves.held[n][j]]
        ending = [n for n in held if depth[n] + 1 == deepest[n]] if shortcuts.reads_class_token(model, j) else []
        if len(ending) < len(held) and not pays_apart(model):
            ending = []
        for some, is_last in parts_of(held, ending, [n for n in held if lowest[n] > j]):
            if some:
                tokens.put(some, layer(model, leaves, j, some, tokens, [draws[n] for n in some], is_last, recomputes))
        depth |= {n: depth[n] + 1 for n in held}
        out.read(tokens, {n: depth[n] for n in held if depth[n] < deepest[n]})
    out.read(tokens, deepest)  # together, in whichever layers they have ended
    return out.answers(sizes)


def together(x: dict[int, Tensor]) -> tuple[Tensor, dict[int, int] | None]:
    """The inputs of all clients, one after the other; and of texts how many tokens each client's are, which shorter
    ones are brought to by padding."""
    first = next(iter(x.values()))
    if first.is_floating_point():
        return torch.cat(list(x.values())), None
    lengths = {n: part.shape[1] for n, part in x.items()}
    most = max(lengths.values())
    return torch.cat([pad(part, (0, most - lengths[n]), value=PADDING) for n, part in x.items()]), lengths


def pays_apart(model: Blocks) -> bool:
    """Whether some clients of a layer go through it apart from the others where that saves work: not on a GPU, where
    launching a further pass takes longer."""
    return model.device.type == "cpu"


def parts_of(held: list[int], ending: list[int], asleep: list[int]) -> Iterator[tuple[list[int], bool]]:
    """(clients, whether it is their last layer) of the passes that a layer takes: `ending` clients read their class
    token alone; of those `asleep`, who train nothing up to here, nothing is kept for a backward pass."""
    for sleeps in (False, True) if asleep else (False,):
        some = [n for n in held if (n in asleep) == sleeps] if asleep else held
        yield [n for n in some if n not in ending], False
        yield [n for n in some if n in ending], True


def layer(
    model: Blocks,
    leaves: StackedParams,
    j: int,
    clients: Sequence[int],
    tokens: Tokens,
    draws: Sequence[Draws],
    is_last: bool,
    recomputes: bool = False,
) -> Tensor:
    """Layer j for clients that hold it, each with its own adapters: (B_1 + ... + B_n, T, D).

    is_last: nothing but the class token is read afterwards, and T = 1 is enough.
    """
    block, x = model.blocks[j], tokens.of(clients)
    sizes, T = [tokens.sizes[n] for n in clients], x.shape[1] if is_last else None
    stack = Stack(leaves.layer(j, clients), sizes, draws, T, tokens.lengths_of(clients))
    mask = tokens.mask_of(clients)

    def run(x: Tensor) -> Tensor:
        with stacked(block, stack):
            return shortcuts.last_layer(block, x) if is_last else model.layer(j, x, mask)

    return recomputed(run, x, draws) if recomputes else run(x)


def clip_each(leaves: StackedParams, most: float) -> None:
    """Scale each client's gradient, over all its layers and classifiers, to a norm of at most `most`."""
    theirs = [(tensor.grad, clients) for tensor, _, clients in leaves if tensor.grad is not None and clients]
    norms: dict[int, list[Tensor]] = {}
    for grad, clients in theirs:
        for n, norm in zip(clients, vector_norm(grad.flatten(1), dim=1).unbind(), strict=True):
            norms.setdefault(n, []).append(norm)
    factors: dict[int, Tensor] = {}
    for length in {len(own): 0 for own in norms.values()}:  # clients of equally many tensors at once
        some = [n for n, own in norms.items() if len(own) == length]
        norm = vector_norm(torch.stack([one for n in some for one in norms[n]]).view(len(some), length), dim=1)
        factors |= dict(zip(some, (most / (norm + 1e-6)).clamp(max=1.0).unbind(), strict=True))
    for grad, clients in theirs:
        grad.mul_(torch.stack([factors[n] for n in clients]).view(-1, *[1] * (grad.dim() - 1)))


@contextmanager
def others_frozen(
    leaves: StackedParams, plan: Plan, answers: Sequence[Answers], pulled: Collection[str] = ()
) -> Iterator[None]:
    """Around an optimiser step: momentum and weight decay move nothing of a client that has taken all its steps, and
    nothing that its objective did not use, as an optimiser of its own would not.

    Args:
        answers: of those who take the step, after the backward pass, with their gradients retained.
        pulled: places that a further term of their losses uses.
    """
    used = {
        n: [exit for exit, o in zip(plan.exits[n], answer.exits, strict=True) if o.grad is not None]
        for answer in answers
        for n in answer.clients
    }

    def moves(n: int, place: str) -> bool:
        if place in pulled:
            return n in used
        exits, j = used.get(n, []), layer_of(place)
        if j is None:
            return bool(exits) and holds({exit.classifier for exit in exits}, name_of(place))
        beneath = sum(leaves.held[n][:j])
        return beneath < max((exit.depth for exit in exits), default=0)

    still = []
    for tensor, place, clients in leaves:
        moving = [moves(n, place) for n in clients]
        if not all(moving):
            still.append((tensor.detach(), moving, tensor.detach().clone()))
    yield
    for tensor, moving, kept in still:
        rows = zip(tensor.unbind(), kept.unbind(), moving, strict=True)
        tensor.copy_(torch.stack([new if moved else old for new, old, moved in rows]))
