"""The engines on a GPU against the oracle."""

from __future__ import annotations

import dataclasses

import pytest
from engine.test_cohort import OTHERS, SGD, Scale, ragged
from every_method import METHODS
from rounds import ALONE, DEVICE, LONG, close, mixed, moved, rounds, two_rounds

from fedbench.engine import cohort as fast
from fedbench.engine import passes, sequential
from fedbench.families.layerwise import layerwise
from fedbench.testing.world import setup_of, tiny_mixer, tiny_vit

pytestmark = pytest.mark.gpu


# test_cuda_alone.py and test_cuda_cells.py have the others.
WITH_AN_ENGINE = [name for name in METHODS if name not in ALONE]


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
        cohort = moved(ragged([4, 2], steps=[LONG, LONG], sizes=[4]), device)
        return two_rounds(layerwise(dataclasses.replace(setup, device=device)), cohort)

    close(final(fast.train, DEVICE), final(sequential.train, "cpu"))


def test_groups_cut_by_memory_equal_one_group(registry, monkeypatch):
    calls, real = [], fast.train_group

    def counted(*arguments):
        calls.append(arguments[5])
        return real(*arguments)

    monkeypatch.setattr(fast, "train_group", counted)
    whole = rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout")
    assert len(calls) == 2  # a group a round
    monkeypatch.setattr(passes, "OF_FREE_MEMORY", 1e-8)
    cut = rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout")
    assert len(calls) == 2 + 2 * 4  # every client alone
    close(whole, cut)
