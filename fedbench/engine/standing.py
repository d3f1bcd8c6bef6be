"""Steps on a GPU that stand from round to round: recorded once, and replayed whoever holds which layers.

In such a step all clients of a group pass all layers. Which layers a client holds, and whether it still trains, are
inputs: where a client does not hold a layer its tokens stay as they were, and what it does not train stays as it was.
That computes more than a round needs, and launches less: it is for small passes, where launching is what takes time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fedbench.engine.groups import Part
from fedbench.engine.leaves import Leaves, Masks, pick
from fedbench.engine.passes import Batch
from fedbench.engine.pulling import Pulling
from fedbench.engine.replay import Replayed
from fedbench.models.adapter import SeededDropout
from fedbench.models.backbone import Blocks
from fedbench.models.draws import Draws
from fedbench.models.places import places, trainers
from fedbench.types import Exit, Job, Plan

SHAPES = 4  # of batches that one step is recorded for; an epoch's short last ones are among them
STEPS = 2  # of a model that stand at a time, each with the memory of its graphs

_standing: weakref.WeakKeyDictionary[Blocks, dict[Hashable, StandingStep]] = weakref.WeakKeyDictionary()


class AStep(Protocol):
    """A step as `fedbench.engine.cohort.Step` takes it."""

    optimizer: torch.optim.Optimizer | None
    pull: Pulling | None

    def __call__(self, inputs: dict[int, Batch]) -> Tensor: ...


Make = Callable[..., AStep]


def standing(
    model: Blocks, start: Mapping[str, Any], plan: Plan, job: Job, group: Sequence[int], make: Make
) -> StandingStep | None:
    """The step of such a group, as it stood in an earlier round or made now, ready for this round; None where it
    cannot stand: clients' masks are drawn, they hold parts of a layer or tensors of their own, or pulls are linear."""
    own, parameters = dict(places(start)), model.trained()
    parts = (plan.trained, plan.terms, plan.trained_terms, plan.scales)
    if any(part is not None for part in parts) or any(own[p].dim() != w.dim() for p, w in parameters.items()):
        return None
    if job.pull is not None and (job.pull.linear is not None or job.pull.tails is not None):
        return None
    if any(isinstance(module, SeededDropout) and module.p > 0 for module in model.modules()):
        return None
    exits = tuple(tuple(standing_exits(plan, n)) for n in group)
    t = None if getattr(job.objective, "timeless", False) else job.t
    strength = job.pull.strength if job.pull else None
    key = (exits, tuple(plan.frozen), t, id(job.objective), job.clip, strength, *sorted(job.optimizer.items()))
    known = _standing.setdefault(model, {})
    if key not in known:
        for old in list(known)[: max(0, len(known) - STEPS + 1)]:
            del known[old]
        everyone = Plan(torch.ones(len(group), model.num_layers, dtype=torch.bool), exits, frozen=plan.frozen)
        known[key] = StandingStep.made(model, start, everyone, job, make)
    known[key].begin(own, plan, group)
    return known[key]


def forget(model: Blocks) -> None:
    """Give back the memory of the steps that stand."""
    _standing.pop(model, None)


def standing_exits(plan: Plan, n: int) -> list[Exit]:
    """A client's exits counted in all layers: the last one stands behind all of them, whichever it holds."""
    held = plan.M[n].nonzero().flatten().tolist()
    at = {0: 0} | {depth: j + 1 for depth, j in enumerate(held, 1)} | {len(held): plan.M.shape[1]}
    return [Exit(at[exit.depth], exit.classifier) for exit in plan.exits[n]]


@dataclass(eq=False)
class StandingStep:
    """One step, and all that must stay where it is from round to round.

    first: each client's first batch of the round, a full one where any is, which one that has finished goes on with, to
    no effect and in the shape of most steps.
    """

    leaves: Leaves
    masks: Masks
    optimizer: torch.optim.Optimizer | None
    pull: Pulling | None
    replayed: Replayed
    first: dict[int, Batch]

    @classmethod
    def made(cls, model: Blocks, start: Mapping[str, Any], everyone: Plan, job: Job, make: Make) -> StandingStep:
        N, L = everyone.M.shape
        leaves = Leaves(model, dict(start), everyone, range(N))
        leaves.fixed = {place: rows.contiguous().clone() for place, rows in leaves.fixed.items()}  # to be written to
        leaves.masks = Masks(torch.ones(N, L, device=model.device) > 0, torch.ones(N, device=model.device) > 0)
        own = {n: Draws(torch.Generator(model.device)) for n in range(N)}  # from which nothing is drawn
        step = make(weakref.proxy(model), leaves, everyone, job, own)  # no step keeps its model alive
        return cls(leaves, leaves.masks, step.optimizer, step.pull, Replayed(step, [], SHAPES), {})

    @torch.no_grad()
    def begin(self, start: Mapping[str, Tensor], plan: Plan, group: Sequence[int]) -> None:
        """A round begins: the tensors as the server gives them, an optimiser that remembers nothing, and M."""
        self.plan, self.group, self.first = plan, list(group), {}
        for rows in (self.leaves.at, self.leaves.fixed):
            for place, tensor in rows.items():
                tensor.copy_(start[place].expand(tensor.shape))
        for state in self.optimizer.state.values() if self.optimizer else ():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
        if self.pull is not None:
            self.pull.begin()
        _send(self.masks.layers, plan.M[self.group])
        self.active = [True] * len(self.group)
        _send(self.masks.active, torch.tensor(self.active))

    def __call__(self, inputs: dict[int, Batch]) -> Tensor:
        """A step of those clients of the group that have a batch; their losses, in order."""
        self.first = inputs | self.first
        some = next(iter(inputs.values()))
        active = [n in inputs for n in self.group]
        if active != self.active:
            self.active = active
            _send(self.masks.active, torch.tensor(active))
        given = {n: inputs.get(n) or self.first.get(n, some) for n in self.group}
        losses = self.replayed(dict(enumerate(given.values())))
        return pick(losses, self.group, list(inputs))

    def part(self) -> Part:
        """The tensors as they are now, the rows of those who train them, in memory of their own."""
        sent = {}
        for tensor, place, rows in self.leaves:
            theirs = trainers(self.plan, place, self.group)
            sent[place] = pick(tensor.detach(), [self.group[i] for i in rows], theirs).clone()
        return sent


def _send(there: Tensor, values: Tensor) -> None:
    """New values for a tensor of the GPU, without waiting for it."""
    there.copy_(values.pin_memory(), non_blocking=True)
