"""Batches in parts and layers that are computed again: the gradients, masks and losses of whole batches."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch
from engine.test_cohort import ADAPTERS, SGD, rounds
from ragged import ragged, same
from torch import nn

from fedbench.engine import cohort as fast
from fedbench.engine import microbatching, sequential
from fedbench.errors import NotApplicable
from fedbench.families import wholemodel
from fedbench.families.batch_parts import is_mean, mixes_images
from fedbench.families.layerwise import head_at_end
from fedbench.models.draws import Draws
from fedbench.testing.setups import setup_of, tiny_mixer, tiny_vit
from fedbench.types import Job, Plan
from fedbench_plugins.objectives import cross_entropy, mutual_kl

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

MICRO = {"micro_batch": 3}
AGAIN = {"checkpointing": True}
WHOLE = ("fedavg", "ditto", "fedrod", "heterofl", "fjord")


def trained(registry, engine, name, model=tiny_vit, adapter="dropout", **train):
    """A round of clients with batches of 4, 5 and 2 images."""
    cohort = ragged([4, 3, 1], steps=[2, 1, 2], sizes=[4, 5, 2])
    train = {"optimizer": SGD, "clip": 0.5, "regularizer": {"fedprox": 0.7}, **train}
    return rounds(registry, engine, {"name": name}, model(), ADAPTERS[adapter], cohort, train, many=1)


@pytest.mark.parametrize(("name", "model"), [("depthfl", tiny_vit), ("fedra", tiny_mixer)])
def test_both_engines_learn_what_whole_batches_teach(registry, name, model):
    expected = trained(registry, sequential.train, name, model)
    same(trained(registry, sequential.train, name, model, **MICRO, **AGAIN), expected)
    for train in (MICRO, AGAIN):
        same(trained(registry, fast.train, name, model, **train), expected)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "fjord" else pytest.mark.slow) for name in WHOLE]
)
def test_whole_models_learn_what_whole_batches_teach(registry, name, monkeypatch):
    """Of FjORD too, which draws a width for each batch, not for each part of one. What it costs is not asked."""
    monkeypatch.setattr(wholemodel, "counted", lambda *given, **how: (1, 1))
    how = {"adapter": "plain", "regularizer": None}
    plain, other = (trained(registry, sequential.train, name, **how, **more) for more in ({}, {**MICRO, **AGAIN}))
    for state, _ in (plain, other):
        state.pop("clients", None)  # names of files, by their content to the last bit
    same(other, plain)


def test_an_adapter_outside_the_layers_learns_the_same(registry):
    one, two = (
        trained(registry, fast.train, "fedra", adapter="reference", **more) for more in ({**MICRO, **AGAIN}, {})
    )
    same(one, two)


def test_no_pass_holds_more_than_a_micro_batch_and_layers_are_computed_again(registry, monkeypatch):
    setup = setup_of(registry, tiny_vit(), [2], ADAPTERS["dropout"])
    model, cohort, plan = setup.backbone, ragged([2], [2], [4, 2]), Plan(torch.ones(1, 4).bool(), [head_at_end(4)])
    setup.adapter(model)
    model.add_classifier("head", 3)
    start = {"r": [{k: p.detach().clone() for k, p in model.r(j).items()} for j in range(4)]}
    start["shared"] = {k: p.detach().clone() for k, p in model.shared().items()}
    seen, run = [], type(model.layered).run
    monkeypatch.setattr(type(model.layered), "run", lambda *of: seen.append(len(of[2])) or run(*of))
    job = Job(0, 0, SGD, None, cross_entropy, micro_batch=3)
    for again, passes in ((False, 4), (True, 8)):
        seen.clear()
        sequential.train(model, start, plan, cohort, dataclasses.replace(job, checkpointing=again))
        assert seen == passes * [3] + passes * [1] + passes * [2]
    assert microbatching.passes(model, plan, cohort, job)[0] == [3 * 5]  # 5 tokens an image


def test_parts_draw_the_numbers_that_they_have_in_the_whole_batch():
    whole, parts = (Draws(torch.Generator().manual_seed(3)) for _ in range(2))
    for _ in range(3):
        expected = [whole.numbers(count).view(5, -1) for count in (10, 35)]
        for rows in parts.parts(5, 2):
            found = [parts.numbers((rows.stop - rows.start) * each).view(-1, each) for each in (2, 7)]
            assert all(torch.equal(own, every[rows]) for own, every in zip(found, expected, strict=True))


def centred(exits, y, t):
    """Compares images with each other."""
    return ((exits[0] - exits[0].mean(0)) ** 2).sum()


def later(exits, y, t):
    return centred(exits, y, t) if t else cross_entropy(exits, y, t)


def test_losses_that_are_no_mean_over_images_are_found():
    for objective in (cross_entropy, partial(mutual_kl, ramp_rounds=3)):
        assert is_mean(objective, 3, 4, 5)
    for objective in (centred, later, lambda exits, y, t: exits[0].sum(), lambda exits, y, t: exits[7]):
        assert not is_mean(objective, 3, 4, 5)
    assert mixes_images(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False))) and not mixes_images(tiny_vit())


@pytest.mark.parametrize("name", ["reefl", "fedra", "fedavg", "heterofl"])
def test_what_cannot_be_split_is_refused_by_name_and_charged_for_whole_batches(registry, name):
    ref = {"name": name} if name == "reefl" else {"name": name, "objective": centred}
    with pytest.raises(NotApplicable, match="micro_batch: the method's loss is no mean over the images"):
        registry.make("method", ref, setup=setup_of(registry, tiny_vit(), [4], micro_batch=2))
    for train, split in (({}, True), ({"micro_batch": "auto"}, False)):
        cost = registry.make("method", ref, setup=setup_of(registry, tiny_vit(), [4], **train)).price(4, 0)
        assert bool(cost.passes) == split and cost.batch == 4
