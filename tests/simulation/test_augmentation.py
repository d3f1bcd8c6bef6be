"""Augmented images: a function of seed, round, client and step, whoever asks, and part of a cell's identity."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from command import run, write_suite, written
from federations import federation

from fedbench.results.identity import plugin_versions
from fedbench.simulation.batches import Pixels, augmented
from fedbench.simulation.simulation import Simulation
from fedbench.types import Images


def ramps(n: int = 64, side: int = 8) -> torch.Tensor:
    """(n, 3, H, H) uint8: brightness rises to the right, so that a mirrored image shows."""
    return (20 * torch.arange(side)).to(torch.uint8).expand(n, 3, side, side).contiguous()


def test_flip_mirrors_about_half_of_the_images_and_changes_nothing_else():
    images = ramps(200)
    found = augmented(images, ["flip"], seed=1)
    mirrored = (found == images.flip(-1)).flatten(1).all(dim=1)
    assert ((found == images).flatten(1).all(dim=1) ^ mirrored).all() and 70 < int(mirrored.sum()) < 130


def test_crop_takes_a_part_of_each_image_and_keeps_size_and_type():
    for images in (ramps(side=12), ramps(side=12).float() / 255):
        found = augmented(images, ["crop"], seed=1)
        assert found.shape == images.shape and found.dtype == images.dtype
        spread = (found[:, 0, 0, -1].float() - found[:, 0, 0, 0].float()) / images.max()
        assert len(spread.unique()) > 2, "not all images alike"
        assert 0.65 < float(spread.min()) < float(spread.max()) <= 1, "a side is cut to 0.72 at least: 0.7 x 3 / 4"


def test_the_seed_is_all_that_matters():
    torch.manual_seed(1)
    first = augmented(ramps(), ["crop", "flip"], seed=5)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    assert torch.equal(augmented(ramps(), ["flip", "crop"], seed=5), first)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(augmented(ramps(), ["crop", "flip"], seed=6), first)


def changing(**options):
    """Two clients of ramps in batches of four."""
    made = federation((10, 4), **options)
    images = Images(ramps(14).numpy(), np.arange(14), np.zeros(14, np.int64))
    made.pixels = Pixels(images, (0.0,) * 3, (1.0,) * 3, "cpu", augment=["crop", "flip"])
    return made


def test_batches_depend_on_seed_round_client_and_step_alone():
    def batch(t, client, step, **options):
        batches = changing(**options).cohort(t).batches(client)
        return next(itertools.islice(batches, step, None))

    x, y = batch(1, 0, 0)
    again, labels = batch(1, 0, 0)
    assert torch.equal(x, again) and torch.equal(y, labels) and x.dtype == torch.float32 and float(x.max()) <= 1
    for other in (batch(2, 0, 0), batch(1, 1, 0), batch(1, 0, 1), batch(1, 0, 0, seed=1)):
        assert not torch.equal(x, other[0])
    plain = next(federation((10, 4)).cohort(1).batches(0))[1]
    assert torch.equal(y, plain), "the same images, in the same order"


def test_features_of_images_that_change_are_not_kept():
    made = changing()
    made.pixels.keep_features(lambda x: x.flatten(1))
    batches = made.cohort(0).batches
    assert next(batches.features(0))[0].shape == (4, 3, 8, 8)
    assert made.pixels.features(np.arange(2))[0].ndim == 2, "those that are evaluated stay as they are"
    assert torch.equal(next(batches.features(0))[0], next(batches(0))[0])


def test_batches_of_all_clients_pooled_are_changed_too():
    pooled = changing().cohort(0).batches.pooled
    first, second = next(pooled(0))[0], next(pooled(0))[0]
    assert torch.equal(first, second) and first.shape == (4, 3, 8, 8)
    assert not torch.equal(first, torch.from_numpy(ramps(4).numpy() / np.float32(255)))


@pytest.mark.parametrize("method", ["fedra", "head_only", "fedavg", "fedv", "pooled_probe"])
def test_both_engines_see_the_same_images(registry, cells, method):
    config = cells["skew", method]
    losses = {}
    for engine in ("sequential", "cohort"):
        for augment in ([], ["crop", "flip"]):
            changed = {**config, "data": {**config["data"], "augment": augment}, "engine": engine}
            _, rounds = Simulation(changed, registry).run()
            losses[engine, bool(augment)] = [row["loss"] for row in rounds]
    for augment in (True, False):
        assert losses["cohort", augment] == pytest.approx(losses["sequential", augment], rel=1e-4)
    assert losses["cohort", True] != pytest.approx(losses["cohort", False], rel=1e-4)


def test_augmentation_is_part_of_the_identity_and_costs_the_same(tmp_path):
    write_suite(tmp_path, "fedra")
    assert run(cwd=tmp_path).exit_code == 0
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: dots, augment: null}"})
    assert json.loads(run("--json", cwd=tmp_path).stdout)["ran"] == 0, "nothing else than without the key"
    (plain,) = written(tmp_path / "r")
    assert "augment" not in plain["config"]["data"] and "torchvision" not in plain["versions"]
    found = []
    for order in ("flip, crop", "crop, flip", "flip"):
        write_suite(tmp_path, "fedra", {"data: dots": f"data: {{name: dots, augment: [{order}]}}"})
        found.append(json.loads(run("--json", cwd=tmp_path).stdout)["ran"])
    assert found == [1, 0, 1], "their order makes no difference"
    (changed,) = written(tmp_path / "r")
    assert changed["config"]["data"]["augment"] == ["flip"] and changed["versions"]["torchvision"]
    assert plugin_versions(changed) == plugin_versions(plain)


def test_costs_are_those_without_augmentation(registry, cells):
    config = cells["skew", "fedra"]
    plain, changed = (
        Simulation({**config, "data": {**config["data"], "augment": augment}}, registry).run()[1]
        for augment in ([], ["crop", "flip"])
    )
    kept = ("bytes_down", "bytes_up", "flops", "memory")
    assert [[row.get(key) for key in kept] for row in plain] == [[row.get(key) for key in kept] for row in changed]


KEPT = "{name: dots, augment: [flip]}\n  frozen_features: kept"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data: dots": "data: {name: dots, augment: [flip, flip]}"}, "flip is listed twice"),
        (
            {"data: dots": "data: {name: dots, augment: [mirror]}"},
            'expected "crop" or "flip", got "mirror"',
        ),
        ({"data: dots": f"data: {KEPT}"}, "data.augment: frozen_features: kept (at tiny.yaml:6"),
        (
            {
                "data: dots": "data: {name: phrases6, augment: [flip]}",
                "backbone: tiny": "backbone: micro_bert",
                "[2, 1]": "all",
            },
            "data.augment changes images, and the data set 'phrases6' holds texts; leave it out",
        ),
    ],
)
def test_what_cannot_be_augmented_is_refused_in_one_line(tmp_path, changes, said):
    write_suite(tmp_path, "fedra", changes)
    done = run(cwd=tmp_path)
    assert done.exit_code == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "r").exists()
