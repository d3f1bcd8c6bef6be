"""Micro-batching: which clients of a round step together, and how much one pass may hold.

Both follow from the plan and the batches alone, on a GPU from its free memory too, never from the machine's load or its
number of cores, so that equal CPUs give equal bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fedbench import machine
from fedbench.models.backbone import Blocks
from fedbench.models.cost import Shape, holding_of, per_image
from fedbench.models.param_paths import by_layer, trainers
from fedbench.types import Cohort, Job, Plan, Uploads

# Token rows (images x tokens) of one pass on a CPU. Fewer leave time to Python, more fall out of its caches.
ROWS = 2080
MANY = 16  # times the cost of calls is the work of a client that need not share them
CALLS = 2e7  # parameters of a layer times tokens: what costs as much as the calls of a pass through it

# What a group sends back: `r/3/attn.proj.lora_A` and `shared/head.weight`, one row for each client that trains it,
# in order, and `loss` and `seconds`, one value for each of its clients.
Part = dict[str, Tensor]

Batch = tuple[Tensor, Tensor]
OF_FREE_MEMORY = 0.6  # of a GPU may the saved activations of a pass take; workspaces and gradients need the rest

_suffices: WeakKeyDictionary[Blocks, int] = WeakKeyDictionary()  # bytes of a pass, once a larger one has not fitted


def passes(model: Blocks, plan: Plan, cohort: Cohort, job: Job) -> tuple[list[int], int]:
    """What each client's first batch, its largest, or a micro-batch of it adds to a pass, and how much of it a pass
    may hold: token rows on a CPU, bytes of saved activations on a GPU."""
    sizes, pixels = _first_batches(cohort)
    sizes = [min(size, job.micro_batch or size) for size in sizes]
    if not any(sizes):
        return sizes, ROWS
    if model.device.type != "cuda":
        tokens = model.tokens(pixels) if pixels else 0
        rows = [size * tokens for size in sizes]
        alone = model.reads_texts and max(rows) > MANY * calls_of(model)
        return rows, max(rows) if alone else ROWS  # alone a client's texts are packed, and processes share evenly
    shape = Shape(model, job.checkpointing)
    saved = functools.cache(lambda holding: per_image(shape, holding, job.objective, pixels)[1])
    each = [B * saved(holding_of(plan, n)) for n, B in enumerate(sizes)]
    most = int(OF_FREE_MEMORY * machine.gpu_room(model.device))
    return each, max(1, min(most, _suffices.get(model, most)))


def halved(model: Blocks, group: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """A group that has not fitted as two of equal size; no pass with this model is larger than those from now on."""
    _suffices[model] = max(1, sum(sizes[n] for n in group) // 2)
    by_size = sorted(group, key=lambda n: -sizes[n])
    return [sorted(by_size[::2]), sorted(by_size[1::2])]


def inputs_of(model: Blocks, plan: Plan, cohort: Cohort) -> Callable[[int], Iterator[Batch]]:
    """The clients' batches, as features where nobody trains anything else than classifiers upon those, and nobody has
    put batches of his own in their place."""
    exits = [exit for own in plan.exits for exit in own]
    from_features = bool(plan.M.all()) and model.reads_features(range(model.num_layers), exits)
    return getattr(cohort.batches, "features", cohort.batches) if from_features else cohort.batches


def calls_of(model: Blocks) -> float:
    """How many tokens of a pass through a layer cost as much as the calls of it."""
    return CALLS / sum(p.numel() for p in model.blocks[0].parameters())


def _first_batches(cohort: Cohort) -> tuple[list[int], int]:
    """How many images each client's first batch has, and the pixels of their sides; batches that do not say so are
    looked into."""
    batches: Any = cohort.batches
    if hasattr(batches, "first"):
        return [batches.first(n) for n in range(len(cohort))], batches.image_size
    firsts = [next(iter(batches(n)), None) for n in range(len(cohort))]
    found = [batch for batch in firsts if batch is not None]
    return [0 if batch is None else len(batch[1]) for batch in firsts], found[-1][0].shape[-1] if found else 0


def grouped(work: Sequence[float], rows: Sequence[int], most: int) -> list[list[int]]:
    """The clients dealt to as few groups as hold at most `most` rows each, equal in work as far as possible.

    work, rows: of every client. The one with most work comes first, to the group with least work that has room; a
    client of more rows than that stands alone. Returns positions, ascending within a group.
    """
    groups: list[list[int]] = [[] for _ in range(-(-sum(rows) // most))]
    load, filled = [0.0 for _ in groups], [0 for _ in groups]  # what each has of work and rows
    for n in sorted(range(len(work)), key=lambda n: -work[n]):
        room = [k for k, group in enumerate(groups) if not group or filled[k] + rows[n] <= most]
        if not room:
            room = [len(groups)]
            groups.append([])
            load.append(0.0)
            filled.append(0)
        k = min(room, key=load.__getitem__)
        groups[k].append(n)
        load[k] += work[n]
        filled[k] += rows[n]
    return [sorted(group) for group in groups if group]


def joined(parts: Sequence[Part], groups: Sequence[Sequence[int]], plan: Plan, cohort: Cohort) -> Uploads:
    """The parts of all groups as one upload, rows in the order of the clients."""
    whole = merged(parts, groups, plan)
    sent = {place: rows for place, rows in whole.items() if "/" in place}
    return Uploads.of(cohort, **by_layer(sent, plan.M.shape[1]), loss=whole["loss"], seconds=whole["seconds"])


def merged(parts: Sequence[Part], groups: Sequence[Sequence[int]], plan: Plan) -> Part:
    """The parts of some groups as that of one group, rows in the order of the clients."""

    def rows_of(place: str) -> Tensor:
        clients = [n for group in groups for n in (trainers(plan, place, group) if "/" in place else group)]
        rows = torch.cat([part[place] for part in parts])
        return rows[torch.tensor(clients, device=rows.device).argsort()]

    return parts[0] if len(parts) == 1 else {place: rows_of(place) for place in parts[0]}
