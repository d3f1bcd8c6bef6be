"""A finished cell taken up again: the same model, or a message that says what is not the same any more."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from command import TINY, fedbench, run, write_suite

from fedbench.errors import UserError
from fedbench.models.globalmodel import GlobalModel
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest, read_rows, write_manifest, write_rows
from fedbench.results.files import HASHED
from fedbench.results.identity import identity
from fedbench.simulation.saved_model import _clients, reopen
from fedbench.simulation.state import STRUCTURE, load
from fedbench.testing import check_state

METHODS = ["fedra", "depthfl", "head_only"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory, own_cache):
    """A run of every method: the cell's folder by method."""
    folder = tmp_path_factory.mktemp("saved")
    write_suite(folder, ", ".join(METHODS))
    done = run("--quiet", cwd=folder)
    assert (done.exit_code, done.output) == (0, "")
    index = json.loads((folder / "r/tiny/index.json").read_text())
    return {entry["method"]: folder / "r/tiny/cells" / entry["cell"] for entry in index["entries"]}


@pytest.fixture
def cell(ran, tmp_path):
    """A finished cell to be spoilt, with its manifest and its table of scores, as one that is not packed yet."""
    packed = ran["fedra"]
    loose = shutil.copytree(packed, tmp_path / "cell")
    write_rows(loose, "eval", read_rows(packed, "eval"))
    write_manifest(loose, read_manifest(packed))
    return loose


@pytest.mark.parametrize("method", METHODS)
def test_the_reopened_model_scores_what_is_on_disk(ran, plugins, method):
    folder = ran[method]
    simulation, predict = reopen(folder, plugins)
    assert isinstance(predict, GlobalModel)
    check_state(simulation.state)
    last = [row for row in read_rows(folder, "eval") if row["round"] == simulation.rounds]
    answers = simulation.evaluation.answers(lambda client: predict)
    assert simulation.records.eval(simulation.rounds, simulation.evaluation.scored(answers)) == last


@pytest.mark.parametrize("method", METHODS)
def test_the_same_model_is_there_without_the_images(ran, plugins, method, monkeypatch):
    folder, x = ran[method], torch.randn(4, 3, 8, 8)

    def answers(**how):
        simulation, predict = reopen(folder, plugins, **how)
        with torch.no_grad():
            return simulation, predict(x) if method != "depthfl" else torch.stack(list(predict(x).values()))

    whole, expected = answers()
    monkeypatch.setattr(
        "fedbench.registry.facts.CachedFacts.dataset", lambda *_: pytest.fail("the images are asked for")
    )
    simulation, found = answers(images=False)
    assert torch.equal(found, expected)
    assert simulation.dataset.classes == whole.dataset.classes and simulation.dataset.domains == whole.dataset.domains
    assert [len(client) for client in simulation.federation.clients] == [
        len(client) for client in whole.federation.clients
    ]
    assert (simulation.federation.scenario.capacities == whole.federation.scenario.capacities).all()


def test_clients_come_back_with_as_many_examples():
    few = np.arange(5) % 2
    given = _clients({"clients": {"domain": torch.tensor(few), "examples": torch.tensor([2, 0, 1, 3, 1])}})
    assert [client.indices.tolist() for client in given] == [[0, 1], [], [0], [0, 1, 2], [0]]


def test_a_cell_that_is_tested_by_client_has_a_model_too(plugins, tmp_path):
    write_suite(tmp_path, "fedra")
    done = run("--set", "evaluation.by=client", "--quiet", cwd=tmp_path)
    assert (done.exit_code, done.output) == (0, "")
    (folder,) = (tmp_path / "r/tiny/cells").glob("[0-9a-f]*")
    simulation, predict = reopen(folder, plugins)
    last = [row for row in read_rows(folder, "eval") if row["round"] == simulation.rounds]
    assert {row["client"] for row in last} == {0, 1}
    answers = simulation.evaluation.answers(lambda client: predict)
    assert simulation.records.eval(simulation.rounds, simulation.evaluation.scored(answers)) == last
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        expected = predict(x)
        assert torch.equal(reopen(folder, plugins, images=False)[1](x), expected)


def test_what_is_kept_can_be_read_alone(ran):
    kept = load(ran["fedra"])
    assert len(kept["method"]["r"]) == 2
    assert kept["world"]["classes"] == ["a", "b"] and kept["world"]["domains"] == ["one", "two"]
    assert kept["world"]["clients"]["examples"].tolist() == [4, 4]


def refused(cell, plugins, **how) -> str:
    with pytest.raises(UserError) as error:
        reopen(cell, plugins, **how)
    return str(error.value)


def test_a_folder_that_is_no_cell_is_told_with_the_cells_beside_it(cell, plugins):
    for folder in (cell.parent, cell.parent / "skew-fedra-0-4534df823ed3"):
        assert f"In {cell.parent} there are {cell.name}" in refused(folder, plugins)


def test_a_cell_without_a_model_says_how_to_get_one(cell, plugins):
    (cell / STRUCTURE).unlink()
    assert "kept no model" in refused(cell, plugins) and "--force" in refused(cell, plugins)
    change(cell, status="failed")
    assert "this cell is failed; only a finished one has a model" in refused(cell, plugins)
    (cell / "manifest.json").unlink()
    assert "not the folder of a cell" in refused(cell, plugins)


def change(cell, **changes):
    """By somebody who makes the id and the seal agree."""
    manifest = read_manifest(cell) | changes
    write_manifest(cell, manifest | {"id": identity(*(manifest[part] for part in HASHED))})


def test_what_has_changed_is_named(cell, plugins):
    change(cell, fingerprints={"data": "other", "weights": "tiny"})
    message = refused(cell, plugins)
    assert "data: then other, now dots-8-2" in message and "weights" not in message
    reopen(cell, plugins, images=False)
    change(cell, fingerprints={"data": "dots-8-2", "weights": "huge"})
    for images in (True, False):
        assert "weights: then huge, now tiny" in refused(cell, plugins, images=images)


def test_a_plugin_file_must_be_there_and_the_same(cell, plugins, registry, tmp_path):
    assert "computed with the plugin tiny_plugin.py; name that file with --plugin" in refused(cell, registry)
    other = tmp_path / "tiny_plugin.py"
    other.write_text(TINY.read_text() + "\n# changed\n")
    assert f"{other} has changed" in refused(cell, Registry([str(other)]))


OWN_DATA = """
import numpy as np

from fedbench import hookimpl
from fedbench.types import Client, Dataset, Images, Splits


def stripes(image_size: int):
    def half(seed):
        x = np.random.default_rng(seed).integers(0, 255, (8, 3, image_size, image_size)).astype(np.uint8)
        return Images(x, np.arange(8) % 2, np.arange(8) // 4)

    return Dataset(("one", "two"), ("a", "b"), "stripes", lambda: Splits(half(0), half(1)))


def by_half():
    return lambda y, domain, num_domains, draw: [Client(d, d, np.flatnonzero(domain == d)) for d in range(num_domains)]


@hookimpl
def fedbench_register_datasets(register):
    register("stripes", stripes)


@hookimpl
def fedbench_register_partitions(register):
    register("by_half", by_half)
"""


def test_without_images_the_plugin_of_data_and_partition_is_not_asked_for(tmp_path):
    """As `fedbench export` goes: of a data set that it does not read."""
    (tmp_path / "own_data.py").write_text(OWN_DATA)
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: stripes, partition: by_half}"})
    done = run("--quiet", "--plugin", "own_data.py", cwd=tmp_path)
    assert (done.exit_code, done.output) == (0, "")
    (folder,) = (tmp_path / "r/tiny/cells").iterdir()
    plain = Registry([str(TINY)])
    assert "computed with the plugin own_data.py; name that file with --plugin" in refused(folder, plain)
    simulation, predict = reopen(folder, plain, images=False)
    with_data = reopen(folder, Registry([str(TINY), str(tmp_path / "own_data.py")]))[1]
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(predict(x), with_data(x)) and simulation.dataset.classes == ("a", "b")
    (tmp_path / "own_data.py").write_text(f"{OWN_DATA}\n# changed\n")
    edited = Registry([str(TINY), str(tmp_path / "own_data.py")])
    assert "own_data.py has changed" in refused(folder, edited)
    reopen(folder, edited, images=False)
    assert "computed with the plugin" in refused(folder, Registry(), images=False), "what it does read"
    out = tmp_path / "model"
    words = ("export", folder, "--format", "loralib", "-o", out, "--plugin", TINY)
    assert fedbench(*words, cwd=tmp_path).exit_code == 0 and any(out.iterdir())


def test_a_component_that_is_gone_is_named(cell, plugins):
    config = read_manifest(cell)["config"]
    change(cell, config=config | {"data": config["data"] | {"name": "dotz"}})
    assert "no dataset is called 'dotz'; did you mean 'dots'?" in refused(cell, plugins)


def test_a_state_of_another_shape_is_refused(cell, plugins):
    config = read_manifest(cell)["config"]
    change(cell, config=config | {"adapter": config["adapter"] | {"rank": 3}})
    assert "its state does not fit the method 'fedra'" in refused(cell, plugins)


@pytest.mark.parametrize("part", ["train", "backbone__name", "seed"])
def test_a_manifest_that_somebody_has_cut_down_is_refused(cell, plugins, part):
    config = read_manifest(cell)["config"]
    *path, last = part.split("__")
    inner = config
    for step in path:
        inner = inner[step]
    del inner[last]
    change(cell, config=config)
    with pytest.raises(UserError, match="not a manifest of fedbench"):
        reopen(cell, plugins)
