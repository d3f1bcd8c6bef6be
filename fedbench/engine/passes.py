"""How much a client adds to a pass, and how much a pass may hold: on a GPU by its memory, and less of it from then on
where that did not suffice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from fedbench import machine
from fedbench.engine.groups import ROWS
from fedbench.models.backbone import Blocks
from fedbench.models.cost import activations
from fedbench.models.holding import holding_of
from fedbench.models.shape import Shape
from fedbench.types import Cohort, Job, Plan

Batch = tuple[Tensor, Tensor]
OF_FREE_MEMORY = 0.6  # of a GPU may the saved activations of a pass take; workspaces and gradients need the rest

_suffices: WeakKeyDictionary[Blocks, int] = WeakKeyDictionary()  # bytes of a pass, once a larger one has not fitted


def passes(model: Blocks, plan: Plan, cohort: Cohort, job: Job) -> tuple[list[int], int]:
    """What each client's first batch, its largest, adds to a pass, and how much of it a pass may hold: token rows
    on a CPU, bytes of saved activations on a GPU."""
    sizes, pixels = _first_batches(cohort)
    if not any(sizes):
        return sizes, ROWS
    if model.device.type != "cuda":
        tokens = model.tokens(pixels) if pixels else 0
        return [size * tokens for size in sizes], ROWS
    shape = Shape(model)
    saved = functools.cache(lambda holding: activations(shape, holding, job.objective, pixels))
    each = [B * saved(holding_of(plan, n)) for n, B in enumerate(sizes)]
    most = int(OF_FREE_MEMORY * machine.gpu_room(model.device))
    return each, max(1, min(most, _suffices.get(model, most)))


def halved(model: Blocks, group: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """A group that has not fitted as two, alike in size; no pass with this model is larger than those from now on."""
    _suffices[model] = max(1, sum(sizes[n] for n in group) // 2)
    by_size = sorted(group, key=lambda n: -sizes[n])
    return [sorted(by_size[::2]), sorted(by_size[1::2])]


def inputs_of(model: Blocks, plan: Plan, cohort: Cohort) -> Callable[[int], Iterator[Batch]]:
    """The clients' batches: embedded once and for all where the federation keeps that, or as features where nobody
    trains anything else than classifiers upon those, and nobody has put batches of his own in their place."""
    return getattr(cohort.batches, "features" if reads_features(model, plan) else "embedded", cohort.batches)


def reads_features(model: Blocks, plan: Plan) -> bool:
    """Whether no client of the plan trains anything but classifiers upon features of all layers."""
    whole, exits = bool(plan.M.all()), [exit for own in plan.exits for exit in own]
    return whole and model.reads_features(range(model.num_layers), exits)


def _first_batches(cohort: Cohort) -> tuple[list[int], int]:
    """How many images each client's first batch has, and the pixels of their sides; batches that do not say so are
    looked into."""
    batches: Any = cohort.batches
    if hasattr(batches, "first"):
        return [batches.first(n) for n in range(len(cohort))], batches.image_size
    firsts = [next(iter(batches(n)), None) for n in range(len(cohort))]
    found = [batch for batch in firsts if batch is not None]
    return [0 if batch is None else len(batch[1]) for batch in firsts], found[-1][0].shape[-1] if found else 0
