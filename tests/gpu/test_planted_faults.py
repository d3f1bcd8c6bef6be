"""Faults that only a GPU would show, planted into a training step, and found on the pretended one."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pretended
import pytest
import torch
from engine.test_cohort import ADAMW, ADAPTERS, SGD, ragged
from rounds import DEVICE, moved, no_waiting

from fedbench.cell import pixels
from fedbench.engine import cohort as fast
from fedbench.engine import replay
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.seeding import generator
from fedbench.testing.world import setup_of, tiny_vit
from fedbench.types import Images, Job, Plan
from fedbench_plugins.objectives import cross_entropy

STEPS = replay.EAGER + 3
MIXED = "Expected all tensors to be on the same device"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(replay, "_told", set())
    with pretended.gpu() as made, warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield made


def losses(registry, replayed=True, objective=cross_entropy, optimizer=SGD, labels=DEVICE, draws=None, each=None):
    """Of two clients' steps, each with another batch, with dropout and clipping. draws: registered with the graph ·
    each(losses): called after every step."""
    setup = dataclasses.replace(setup_of(registry, tiny_vit(), [2], ADAPTERS["dropout"]), device=DEVICE)
    state = layerwise(setup).init(generator(5))
    plan = Plan(torch.tensor([[1, 1, 0, 0], [0, 1, 0, 0]]).bool(), [head_at_end(2), head_at_end(1)])
    cohort = moved(ragged([2, 1], [STEPS] * 2, [2]), DEVICE)
    leaves = fast.Leaves(setup.backbone, state, plan, range(2))
    own = {n: fast.Draws(fast.generator(0, 0, n, "dropout", setup.backbone.device)) for n in range(2)}
    take = fast.Step(setup.backbone, leaves, plan, Job(0, 0, optimizer, 0.5, objective), own)
    if replayed:
        take = replay.Replayed(take, own.values() if draws is None else draws)
    batches, told = {n: cohort.batches(n) for n in range(2)}, []
    for _ in range(STEPS):
        inputs = {n: next(own) for n, own in batches.items()}
        told.append(take({n: (x, y.to(labels)) for n, (x, y) in inputs.items()}))
        each(told) if each else None
    return torch.stack(told).cpu()


def apart(registry, **given) -> float:
    """How far steps that are replayed end from those run eagerly."""
    return float((losses(registry, **given) - losses(registry, replayed=False, **given)).abs().max())


def test_without_a_fault_there_is_nothing_to_find(registry, gpu):
    assert apart(registry) < 1e-12 and (gpu.graphs.recorded, gpu.graphs.replayed) == (1, 3)
    assert apart(registry, optimizer=ADAMW) < 1e-12 and gpu.graphs.recorded == 2


def on_the_cpu(logits, y, t):
    return cross_entropy(logits, y, t) * torch.ones(len(y)).mean() + (logits[0].mean(1) * torch.ones(len(y))).sum()


def as_numpy(logits, y, t):
    return cross_entropy(logits, y, t) * float(y.numpy().mean())


def drawing(logits, y, t):
    return (
        cross_entropy(logits, y, t) + torch.rand(1, generator=torch.Generator().manual_seed(t), device=y.device).sum()
    )


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"objective": on_the_cpu}, RuntimeError, MIXED),
        ({"objective": as_numpy}, TypeError, "numpy"),
        ({"objective": drawing}, RuntimeError, "device type for generator"),
        ({"labels": "cpu"}, RuntimeError, MIXED),
    ],
    ids=["a CPU tensor", "numpy", "a generator of the CPU", "labels that stayed"],
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

    assert apart(registry, objective=waiting) < 1e-12 and gpu.graphs.recorded == 0
    assert any(place.startswith("test_planted_faults.py") for _, place in gpu.waits)
    with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
        losses(registry, objective=waiting, replayed=False)


def test_a_wait_that_only_the_recording_meets_is_told_once_and_run_eagerly(registry, gpu):
    def waiting(logits, y, t):
        if torch.cuda.is_current_stream_capturing():
            logits[0].tolist()
        return cross_entropy(logits, y, t)

    waiting.stacked = lambda exits, y, t: torch.stack([waiting([o[n] for o in exits], y[n], t) for n in range(len(y))])
    with pytest.warns(UserWarning, match="cannot be recorded.*not permitted when stream is capturing") as told:
        found = losses(registry, objective=waiting)
        losses(registry, objective=waiting)
    assert len(told) == 1 and gpu.graphs.recorded == 0
    torch.testing.assert_close(found, losses(registry, replayed=False), rtol=1e-12, atol=1e-12)


def test_a_recording_for_which_there_is_no_room_is_run_eagerly(registry, gpu):
    def large(logits, y, t):
        gpu.memory.fraction = 0.0 if torch.cuda.is_current_stream_capturing() else 1.0
        try:
            return cross_entropy(logits, y, t)
        finally:
            gpu.memory.fraction = 1.0

    with pytest.warns(UserWarning, match="OutOfMemoryError: CUDA out of memory"):
        found = losses(registry, objective=large)
    torch.testing.assert_close(found, losses(registry, replayed=False), rtol=1e-12, atol=1e-12)


def test_a_generator_that_the_graph_does_not_know(registry, gpu):
    with pytest.warns(UserWarning, match="not registered with the graph"):
        losses(registry, draws=[])


def test_an_optimiser_that_cannot_be_recorded(registry, gpu, monkeypatch):
    def plain(parameters, options, fused):
        return torch.optim.AdamW(parameters, lr=options["lr"])

    monkeypatch.setattr(fast, "make_optimizer", plain)
    with pytest.warns(UserWarning, match="capturable"):
        losses(registry)


def test_a_counter_in_python(registry, gpu, monkeypatch):
    calls, real = [], fast.clip_each

    def counted(leaves, most):
        calls.append(None)
        real(leaves, most / len(calls))

    monkeypatch.setattr(fast, "clip_each", counted)
    one = losses(registry)
    calls.clear()
    assert (one - losses(registry, replayed=False)).abs().max() > 1e-6 and gpu.graphs.recorded == 1


def test_batches_that_do_not_reach_the_graph(registry, gpu, monkeypatch):
    monkeypatch.setattr(torch, "_foreach_copy_", lambda kept, new: None)
    assert apart(registry) > 1e-3


def test_losses_that_the_next_replay_overwrites(registry, gpu, monkeypatch):
    def kept(self, one, inputs):
        real(self, one, inputs)
        return one.losses

    real = replay.Replayed._replay
    monkeypatch.setattr(replay.Replayed, "_replay", kept)
    assert apart(registry) > 1e-3


def test_tensors_that_do_not_stay_where_they_are(registry, gpu, monkeypatch):
    """A trained tensor whose gradient is kept in Python from step to step: the graph knows its first place alone."""

    class Moving(torch.optim.SGD):
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["own"] = self.state[p].get("own", 0.0) + p.grad
                    p.data.sub_(self.state[p]["own"], alpha=0.1)

    monkeypatch.setattr(fast, "make_optimizer", lambda parameters, options, fused: Moving(parameters, lr=0.1))
    assert apart(registry) > 1e-6


def test_memory_that_grows_with_every_step(registry, gpu):
    def used(told):
        sizes.append(torch.cuda.memory_allocated())

    def hoarding(told):
        hoard.append(torch.ones(2**20, device=DEVICE))
        used(told)

    sizes, hoard = [], []
    losses(registry, replayed=False, each=used)
    assert sizes[-1] - sizes[1] < 2**16
    sizes.clear()
    losses(registry, replayed=False, each=hoarding)
    assert sizes[-1] - sizes[1] > 2**20


def test_images_that_are_awaited(gpu, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    x, some = torch.randint(256, (9, 3, 4, 4), generator=draw, dtype=torch.uint8).numpy(), np.arange(9)
    resident = pixels.Pixels(Images(x, some % 2, some * 0), (0.5,) * 3, (0.5,) * 3, DEVICE)
    with no_waiting():
        resident(some)
    monkeypatch.setattr(pixels.Pixels, "_sent", lambda self, values: torch.from_numpy(values.copy()).to(self.device))
    with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
        resident(some)
