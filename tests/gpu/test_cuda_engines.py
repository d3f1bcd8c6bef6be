"""The engines on a GPU against the oracle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from engine.test_cohort import ADAMW, ADAPTERS, OTHERS, SGD, Scale, ragged
from every_method import METHODS
from rounds import ALONE, DEVICE, FEW, REAL, close, mixed, moved, no_waiting, rounds, sampled, two_rounds

from fedbench.engine import cohort as fast
from fedbench.engine import microbatching, sequential
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.seeding import generator
from fedbench.testing.setups import setup_of, tiny_mixer, tiny_vit
from fedbench.types import Job, Plan
from fedbench_plugins.objectives import cross_entropy

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("counted_once")]


# test_cuda_alone.py and test_cuda_cells.py have the others.
WITH_AN_ENGINE = sampled((name for name in METHODS if name not in ALONE), FEW)


@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("name", WITH_AN_ENGINE)
def test_two_rounds_of_every_method_equal_the_oracle_on_the_cpu(registry, model, name):
    options = {"model": model, "ref": name, "optimizer": SGD, "clip": 0.5}
    one = rounds(registry, fast.train, DEVICE, mixed(), **options)
    close(one, rounds(registry, sequential.train, "cpu", mixed(), **options))


@pytest.mark.parametrize("adapter", ["dropout", "reference"])
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("name", WITH_AN_ENGINE)
def test_with_dropout_they_equal_the_oracle_on_the_gpu(registry, model, adapter, name):
    """One seed draws other masks on a CPU."""
    options = {"model": model, "adapter": adapter, "ref": name, "optimizer": SGD, "clip": 0.5}
    one = rounds(registry, fast.train, DEVICE, mixed(), **options)
    close(one, rounds(registry, sequential.train, DEVICE, mixed(), **options))


@pytest.mark.parametrize("adapter", OTHERS)
def test_any_adapter_equals_the_oracle_on_the_cpu(registry, adapter):
    options = {"adapter": adapter, "ref": "fedra", "optimizer": SGD, "clip": 0.5}
    one = rounds(registry, fast.train, DEVICE, mixed(), **options)
    close(one, rounds(registry, sequential.train, "cpu", mixed(), **options))


def test_an_adapter_that_cannot_be_stacked_is_exact_all_the_same(registry):
    def attach(blocks):
        for block in blocks.blocks:
            block.mlp.fc2 = Scale(block.mlp.fc2)

    def final(engine, device):
        setup = dataclasses.replace(setup_of(registry, tiny_vit(), [4, 2]), adapter=attach, engine=engine)
        cohort = moved(ragged([4, 2], steps=[4, 4], sizes=[4]), device)
        return two_rounds(layerwise(dataclasses.replace(setup, device=device)), cohort)

    close(final(fast.train, DEVICE), final(sequential.train, "cpu"))


@pytest.mark.skipif(not REAL, reason="the pretended GPU counts no memory")
def test_groups_cut_by_memory_equal_one_group(registry, monkeypatch):
    calls, real = [], fast.train_group

    def counted(*arguments):
        calls.append(arguments[5])
        return real(*arguments)

    monkeypatch.setattr(fast, "train_group", counted)
    whole = rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout")
    assert len(calls) == 2  # a group a round
    monkeypatch.setattr(microbatching, "OF_FREE_MEMORY", 1e-8)
    cut = rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout")
    assert len(calls) == 2 + 2 * 4  # every client alone
    close(whole, cut)


@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("adapter", ["plain", "dropout"])
def test_a_client_that_has_finished_is_kept_still(registry, optimizer, adapter):
    cohort = mixed(steps=[4, 3, 1, 1], sizes=[4])
    options = {"ref": "depthfl", "optimizer": optimizer, "clip": 0.5, "adapter": adapter}
    one = rounds(registry, fast.train, DEVICE, cohort, **options)
    close(one, rounds(registry, sequential.train, DEVICE, cohort, **options))


@pytest.mark.skipif(not REAL, reason="the pretended GPU counts no memory")
def test_memory_does_not_grow_from_round_to_round(registry):
    cohort = moved(ragged([4, 3, 3, 1], steps=[2] * 4, sizes=[4]), DEVICE)
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
    leaves = fast.StackedParams(setup.backbone, state, plan, range(3))
    draws = {n: fast.Draws(generator(0, 0, n, "dropout", setup.backbone.device)) for n in range(3)}
    step = fast.Step(setup.backbone, leaves, plan, Job(0, 0, SGD, 0.5, cross_entropy), draws)
    return step, {n: next(cohort.batches(n)) for n in range(3)}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("active", [[0, 1, 2], [0, 2]], ids=["all", "one has finished"])
def test_a_step_never_waits_for_the_gpu(registry, model, adapter, active):
    """A wait would let the GPU stand idle while Python prepares the next operators."""
    step, inputs = stepping(registry, model, adapter)
    step(inputs)
    with no_waiting():
        step({n: inputs[n] for n in active})


@pytest.mark.skipif(not REAL, reason="the pretended GPU counts no memory")
def test_a_pass_that_does_not_fit_is_halved(registry, monkeypatch):
    """The numbers are those of a pass that fits."""
    calls, real = [], fast.train_group

    def small(*given):
        calls.append(len(given[5]))
        part = real(*given)
        if len(given[5]) > 2:
            torch.cuda.set_per_process_memory_fraction(1e-4)
            try:
                torch.empty(2**28, dtype=torch.uint8, device=DEVICE)
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
        return part

    whole = rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout")
    monkeypatch.setattr(fast, "train_group", small)
    close(whole, rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout"))
    assert calls[:3] == [4, 2, 2] and max(calls[3:]) <= 2  # later passes are no larger than what fitted
