"""Faults that only a GPU would show, planted into a training step, and found on the pretended one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pretended
import pytest
import torch
from engine.test_cohort import ADAMW, ADAPTERS, SGD, ragged
from rounds import DEVICE, moved, no_waiting

from fedbench.engine import cohort as fast
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.seeding import generator
from fedbench.simulation import batches
from fedbench.testing.setups import setup_of, tiny_vit
from fedbench.types import Images, Job, Plan
from fedbench_plugins.objectives import cross_entropy

STEPS = 3
MIXED = "Expected all tensors to be on the same device"


@pytest.fixture
def gpu():
    with pretended.gpu() as made:
        yield made


def losses(registry, objective=cross_entropy, optimizer=SGD, labels=DEVICE, each=None):
    """Of two clients' steps, each with another batch, with dropout and clipping. each(losses): called after every
    step."""
    setup = dataclasses.replace(setup_of(registry, tiny_vit(), [2], ADAPTERS["dropout"]), device=DEVICE)
    state = layerwise(setup).init(generator(5))
    plan = Plan(torch.tensor([[1, 1, 0, 0], [0, 1, 0, 0]]).bool(), [head_at_end(2), head_at_end(1)])
    cohort = moved(ragged([2, 1], [STEPS] * 2, [2]), DEVICE)
    leaves = fast.StackedParams(setup.backbone, state, plan, range(2))
    own = {n: fast.Draws(fast.generator(0, 0, n, "dropout", setup.backbone.device)) for n in range(2)}
    take = fast.Step(setup.backbone, leaves, plan, Job(0, 0, optimizer, 0.5, objective), own)
    batches, found = {n: cohort.batches(n) for n in range(2)}, []
    for _ in range(STEPS):
        inputs = {n: next(own) for n, own in batches.items()}
        found.append(take({n: (x, y.to(labels)) for n, (x, y) in inputs.items()}))
        each(found) if each else None
    return torch.stack(found).cpu()


def test_without_a_fault_there_is_nothing_to_find(registry, gpu):
    assert losses(registry, optimizer=ADAMW).isfinite().all()


def on_the_cpu(logits, y, t):
    return cross_entropy(logits, y, t) * torch.ones(len(y)).mean() + (logits[0].mean(1) * torch.ones(len(y))).sum()


def as_numpy(logits, y, t):
    return cross_entropy(logits, y, t) * float(y.numpy().mean())


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"objective": on_the_cpu}, RuntimeError, MIXED),
        ({"objective": as_numpy}, TypeError, "numpy"),
        ({"labels": "cpu"}, RuntimeError, MIXED),
    ],
    ids=["a CPU tensor", "numpy", "labels that stayed"],
)
def test_what_would_raise_raises(registry, gpu, given, kind, says):
    with pytest.raises(kind, match=says):
        losses(registry, **given)


def test_masks_of_the_wrong_side(registry, gpu, monkeypatch):
    monkeypatch.setattr(fast, "generator", lambda seed, t, n, use, device: generator(seed, t, n, use))
    with pytest.raises(RuntimeError, match=MIXED):
        losses(registry)


def test_a_wait_in_every_step(registry, gpu):
    def waiting(logits, y, t):
        return cross_entropy(logits, y, t) * (1 if logits[0].sum().item() else 1)

    losses(registry, objective=waiting)
    assert any(place.startswith("test_planted_faults.py") for _, place in gpu.waits)
    with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
        losses(registry, objective=waiting)


def test_memory_that_grows_with_every_step(registry, gpu):
    def used(found):
        sizes.append(torch.cuda.memory_allocated())

    def hoarding(found):
        hoard.append(torch.ones(2**20, device=DEVICE))
        used(found)

    sizes, hoard = [], []
    losses(registry, each=used)
    assert sizes[-1] - sizes[1] < 2**16
    sizes.clear()
    losses(registry, each=hoarding)
    assert sizes[-1] - sizes[1] > 2**20


def test_images_that_are_awaited(gpu, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    x, some = torch.randint(256, (9, 3, 4, 4), generator=draw, dtype=torch.uint8).numpy(), np.arange(9)
    pixels = batches.Pixels(Images(x, some % 2, some * 0), (0.5,) * 3, (0.5,) * 3, DEVICE)
    with no_waiting():
        pixels(some)
    monkeypatch.setattr(batches.Pixels, "_sent", lambda self, values: torch.from_numpy(values.copy()).to(self.device))
    with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
        pixels(some)
