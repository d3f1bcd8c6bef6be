"""Validation images: held out of everybody's training, scored beside the test images, and nothing else changes."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from command import run, write_suite
from priced import totals_of

from fedbench.errors import UserError
from fedbench.export import export
from fedbench.registry.facts import CachedFacts
from fedbench.results import read_rows
from fedbench.results.scores import VALIDATION
from fedbench.runner.runner import load
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.saved_model import reopen
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.state import file_bytes
from fedbench.types import Images, Splits

# Two by each way that leads from a client's images into a model.
METHODS = (
    *("fedra", "depthfl", "inclusivefl", "reefl", "fed_hello", "hetlora", "flora", "local_only", "fedsa_lora"),
    *("ditto", "fedavg", "fedrod", "fedrolex", "fjord", "fedv", "fedvz", "majority", "zero_round"),
)
# Those that read images by means of their own; the others, which the engine or `fit` trains, are slow.
ONE = ("fedra", "ditto", "fedvz", "zero_round")


@pytest.fixture(scope="module")
def cells(plugins, tmp_path_factory):
    """By method: two clients of a domain each, eight images, two of them for validation, one proxy image of a kind."""
    data = "data: {name: dots, per_class: 5, proxy: {images: 4}}\n  evaluation: {validation: 0.25}"
    changes = {"data: dots": data, "max_steps: 1": "max_steps: 3", "dropout: 0.0": "dropout: 0.1"}
    path = write_suite(tmp_path_factory.mktemp("suite"), ", ".join(METHODS), changes)
    return {cell.method: cell.config for cell in load(path, plugins).points()}


def by_client(config):
    return {**config, "evaluation": {**config["evaluation"], "by": "client"}}


def held_out(simulation):
    """The positions of all validation images."""
    shares = [share.indices for share in simulation.evaluation.splits if share.split == VALIDATION]
    return np.sort(np.concatenate(shares))


def with_images(dataset, change):
    """The data set with its training images as floats, changed."""
    splits = dataset.load()
    train = Images(change(splits.train.x.astype(np.float32) / 255), splits.train.y, splits.train.domain)
    return dataclasses.replace(dataset, load=lambda: Splits(train, splits.test))


def outcome(config, plugins, dataset):
    progress, simulation = Progress(), Simulation(config, plugins, dataset=dataset)
    evaluation, rounds = simulation.run(progress=progress)
    tested = [row for row in evaluation if row["split"] == "test"]
    return simulation, tested, [{**row, "seconds": 0} for row in rounds], file_bytes(progress.state)


@pytest.mark.parametrize("method", [pytest.param(m, marks=() if m in ONE else pytest.mark.slow) for m in METHODS])
def test_what_validation_images_hold_reaches_no_model(cells, plugins, method, monkeypatch):
    """With pixels that are no numbers every loss, test score and bit of the state is what it is without."""
    refusal = "fedbench.simulation.federated_data.fault_of_data"  # of such pixels
    monkeypatch.setattr(refusal, lambda *images: "")
    monkeypatch.setattr("fedbench.simulation.evaluation.unanswered", lambda logits: 0)  # and what is said of them
    config = by_client(cells[method])
    simulation = Simulation(config, plugins)
    held, trained = held_out(simulation), np.concatenate([client.indices for client in simulation.federation.clients])
    assert len(held) == 4 and sorted([*held, *trained, *simulation.proxy]) == list(range(20))

    def spoilt(x):
        x[held] = np.nan
        return x

    clean = outcome(config, plugins, with_images(simulation.dataset, lambda x: x))
    nan = outcome(config, plugins, with_images(simulation.dataset, spoilt))
    assert nan[1:] == clean[1:]
    assert all(np.isfinite(row["loss"]) or not row["steps"] for row in nan[2])


@pytest.mark.parametrize("by", ["domain", "client"])
def test_validation_images_are_scored_whenever_test_images_are(cells, plugins, by):
    config = by_client(cells["local_only"]) if by == "client" else cells["fedra"]
    simulation = Simulation(config, plugins)
    rows, rounds = simulation.run()
    assert {row["examples"] for row in rounds} == {6}  # eight less two
    where = {split: [(r["round"], r["domain"], r["client"]) for r in rows if r["split"] == split]
             for split in ("test", "validation")}  # fmt: skip
    assert where["test"] == where["validation"] and len(where["test"]) == 4
    assert {r["client"] for r in rows} == ({-1} if by == "domain" else {0, 1})
    assert {r["examples"] for r in rows if r["split"] == "validation"} == {2}
    predictor = simulation.method.predictor
    for share in simulation.evaluation.splits:
        if share.split == VALIDATION:
            predict = predictor(simulation.state, None if by == "domain" else share.client)
            x, y = simulation.train(share.indices)
            right = (predict(x).argmax(1) == y).double().mean().item()
            (row,) = [r for r in rows if (r["round"], r["split"], r["domain"]) == (2, "validation", share.domain)]
            assert row["value"] == right


def test_without_the_key_or_for_a_part_too_small_there_are_none(cells, plugins):
    config = cells["fedra"]
    without = {**config, "evaluation": {k: v for k, v in config["evaluation"].items() if k != "validation"}}
    rows, rounds = Simulation(without, plugins).run()
    assert {row["split"] for row in rows} == {"test"} and {row["examples"] for row in rounds} == {8}
    with pytest.raises(UserError, match="evaluation.validation: 0.05 of a client's training examples is less than one"):
        Simulation({**config, "evaluation": {**config["evaluation"], "validation": 0.05}}, plugins)
    with_, none = (Simulation(by_client(c), plugins) for c in (config, without))
    tested = [[s.indices.tolist() for s in t.evaluation.splits if s.split == "test"] for t in (with_, none)]
    assert tested[0] == tested[1]  # test images of clients are dealt by all the images that they have


def test_a_plan_counts_their_answers(cells, plugins):
    totals = totals_of(CachedFacts(plugins), "with", cells["fedra"])
    rows, _ = Simulation(cells["fedra"], plugins).run()
    assert totals["tested"] == sum(row["examples"] for row in rows)
    assert totals["images"] == 2 * 2 * 6


def test_a_finished_cell_is_reopened_and_exported_with_them(plugins, tmp_path):
    write_suite(tmp_path, "fedra", {"data: dots": "data: dots\n  evaluation: {validation: 0.25}"})
    done = run("--quiet", cwd=tmp_path)
    assert (done.exit_code, done.output) == (0, "")
    (folder,) = (tmp_path / "r/tiny/cells").glob("[0-9a-f]*")
    rows = read_rows(folder, "eval")
    simulation, predict = reopen(folder, plugins)
    answers = simulation.evaluation.answers(lambda client: predict)
    again = simulation.records.eval(simulation.rounds, simulation.evaluation.scored(answers))
    assert again == [row for row in rows if row["round"] == simulation.rounds]
    blank, _ = reopen(folder, plugins, images=False)
    assert [len(client) for client in blank.federation.clients] == [3, 3]
    assert {share.split for share in blank.evaluation.splits} == {"test"}
    export(folder, "loralib", tmp_path / "out", plugins)
    scores = json.loads((tmp_path / "out/config.json").read_text())["fedbench"]["scores"]["accuracy"]
    last = {r["domain"]: r["value"] for r in rows if r["round"] == simulation.rounds and r["split"] == "test"}
    assert scores["domains"] == last
