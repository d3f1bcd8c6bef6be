"""Steps on a GPU that are recorded as graphs and replayed: the same numbers, no needless wait, no growing memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from engine.test_cohort import ADAMW, ADAPTERS, SGD, ragged
from rounds import DEVICE, LONG, close, mixed, moved, no_waiting, rounds

from fedbench.engine import cohort as fast
from fedbench.engine import replay as graph
from fedbench.engine import sequential, shortcuts
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.seeding import generator
from fedbench.testing.world import setup_of, tiny_mixer, tiny_vit
from fedbench.types import Job, Plan
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.gpu

NEVER = -1  # bytes up to which steps are replayed


@pytest.fixture
def replays(monkeypatch) -> list[None]:
    """Grows by one with every replay of a graph."""
    seen: list[None] = []
    real = graph.Replayed._replay

    def counted(self, one, inputs):
        seen.append(None)
        return real(self, one, inputs)

    monkeypatch.setattr(graph.Replayed, "_replay", counted)
    return seen


@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("adapter", ["plain", "dropout"])
@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_replayed_steps_equal_those_run_eagerly(registry, monkeypatch, replays, model, optimizer, adapter, clip):
    cohort = ragged([4, 3, 3, 1], steps=[LONG] * 4, sizes=[4])
    options = {"model": model, "adapter": adapter, "ref": "depthfl", "optimizer": optimizer, "clip": clip}
    replayed = rounds(registry, fast.train, DEVICE, cohort, **options)
    assert len(replays) == 2 * (LONG - graph.EAGER)
    monkeypatch.setattr(fast, "REPLAYED_BYTES", NEVER)
    close(replayed, rounds(registry, fast.train, DEVICE, cohort, **options))
    assert len(replays) == 2 * (LONG - graph.EAGER)
    close(replayed, rounds(registry, sequential.train, DEVICE, cohort, **options))


@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("adapter", ["plain", "dropout"])
def test_a_client_that_has_finished_is_kept_still(registry, replays, optimizer, adapter):
    """With dropout a graph is recorded anew for those that are left; elsewhere one step serves all."""
    cohort = mixed(steps=[3 * LONG, 2 * LONG, LONG, LONG], sizes=[4])
    options = {"ref": "depthfl", "optimizer": optimizer, "clip": 0.5, "adapter": adapter}
    one = rounds(registry, fast.train, DEVICE, cohort, **options)
    eager = graph.EAGER if adapter == "plain" else 3 * graph.EAGER
    assert len(replays) == 2 * (3 * LONG - eager)
    close(one, rounds(registry, sequential.train, DEVICE, cohort, **options))


def test_short_batches_at_the_end_of_an_epoch_are_run_eagerly(registry, replays):
    cohort = mixed(steps=[2 * LONG] * 4, sizes=[4] * (LONG - 1) + [2])
    one = rounds(registry, fast.train, DEVICE, cohort, adapter="dropout", optimizer=SGD)
    close(one, rounds(registry, sequential.train, DEVICE, cohort, adapter="dropout", optimizer=SGD))


def test_batches_that_always_differ_are_never_replayed_where_no_step_stands(registry, replays):
    cohort = mixed(steps=[LONG] * 4, sizes=[4, 2])
    one = rounds(registry, fast.train, DEVICE, cohort, adapter="dropout", optimizer=SGD)
    assert not replays
    close(one, rounds(registry, sequential.train, DEVICE, cohort, adapter="dropout", optimizer=SGD))


def test_memory_does_not_grow_from_round_to_round(registry):
    cohort = moved(ragged([4, 3, 3, 1], steps=[LONG] * 4, sizes=[4]), DEVICE)
    setup = dataclasses.replace(setup_of(registry, tiny_vit(), [4, 3, 3, 1]), engine=fast.train, device=DEVICE)
    method = layerwise(setup)
    state = method.init(generator(0))
    held = []
    for t in range(12):
        state, _ = method.round(state, t, cohort, generator(0, t))
        held.append(torch.cuda.memory_allocated())
    assert max(held[6:]) <= max(held[:6]) + 2**20


def stepping(registry, model, adapter) -> tuple[Callable, dict]:
    """The step function of a group of three clients, and a batch for each of them."""
    setup = setup_of(registry, model(), [4], ADAPTERS[adapter])
    state = layerwise(dataclasses.replace(setup, device=DEVICE)).init(generator(5))
    M = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 1, 0, 0]]).bool()
    plan = Plan(M, [head_at_end(depth) for depth in M.sum(1).tolist()])
    cohort = moved(ragged(M.sum(1).tolist(), [1, 1, 1], [4]), DEVICE)
    leaves = fast.Leaves(setup.backbone, state, plan, range(3))
    draws = {n: fast.Draws(generator(0, 0, n, "dropout", setup.backbone.device)) for n in range(3)}
    step = fast.Step(setup.backbone, leaves, plan, Job(0, 0, SGD, 0.5, cross_entropy), draws)
    return step, {n: next(cohort.batches(n)) for n in range(3)}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("active", [[0, 1, 2], [0, 2]], ids=["all", "one has finished"])
def test_a_step_never_waits_for_the_gpu(registry, model, adapter, active):
    """Or it could not be recorded."""
    step, inputs = stepping(registry, model, adapter)
    step(inputs)
    with no_waiting():
        step({n: inputs[n] for n in active})


@pytest.fixture
def compiled(monkeypatch):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    shortcuts.compiled.cache_clear()
    yield lambda: monkeypatch.setattr(shortcuts, "COMPILED_FROM", 1)
    shortcuts.compiled.cache_clear()
    torch._dynamo.reset()


@pytest.mark.compiles
@pytest.mark.parametrize("bytes_replayed", [NEVER, fast.REPLAYED_BYTES], ids=["eager", "replayed"])
@pytest.mark.parametrize("adapter", ["plain", "dropout"])
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
def test_compiled_blocks_equal_plain_ones(registry, monkeypatch, compiled, model, adapter, bytes_replayed):
    monkeypatch.setattr(fast, "REPLAYED_BYTES", bytes_replayed)
    cohort = ragged([4, 3, 3, 1], steps=[LONG] * 4, sizes=[4])
    options = {"model": model, "adapter": adapter, "single": True, "optimizer": SGD}
    plain = rounds(registry, fast.train, DEVICE, cohort, **options)
    compiled()
    close(plain, rounds(registry, fast.train, DEVICE, cohort, **options), 1e-4)
    assert 0 < torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4  # test_compiling.py counts what runs them
