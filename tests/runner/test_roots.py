"""Where a relative `data.root` leads: from the suite's folder, or from the current one on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import TINY, write_suite
from PIL import Image

from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner import runner
from fedbench.runner.cells import cells_of
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.saved_model import reopen

DATA = "{name: image_folder, root: ROOT}"


def pictures(root: Path) -> Path:
    for i, place in enumerate(("one/a", "one/b", "two/a", "two/b")):
        (root / place).mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (8, 8), (40 * i, 60 * k, 0)).save(root / place / f"{k}.png")
    return root


def suite_in(folder: Path, root: str, **changes: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write_suite(folder, "allsmall", {"data: dots": f"data: {DATA.replace('ROOT', root)}", **changes})


def cell(path: Path, *sets: str):
    registry = Registry([str(TINY)])
    suite = runner.load(path, registry, sets=sets)
    (found,) = cells_of(suite.points(), registry, CachedFacts(registry, suite.base))
    return found


def test_a_root_is_relative_to_the_suite_and_its_cell_the_same_wherever_both_lie(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "here/pictures")
    here = cell(suite_in(tmp_path / "here/suites", "../pictures"))
    assert here.config["data"]["root"] == "../pictures" and here.root == str(tmp_path / "here/suites/../pictures")
    (tmp_path / "here").rename(tmp_path / "there")
    assert cell(Path("there/suites/tiny.yaml")).id == here.id
    monkeypatch.chdir(tmp_path / "there/suites")
    assert cell(Path("tiny.yaml")).id == here.id


def test_the_id_is_that_of_before(tmp_path, monkeypatch):
    """A suite that was run from its own folder keeps its cells."""
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "pictures")
    found = cell(suite_in(tmp_path, "pictures"))
    whole = cell(suite_in(tmp_path, str(tmp_path / "pictures")))
    assert found.fingerprints == whole.fingerprints and found.id != whole.id  # each spelling is a cell of its own
    assert whole.root is None and "root" not in whole.manifest()


def test_a_root_on_the_command_line_is_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "mine")
    path = suite_in(tmp_path / "suites", "gone")
    for words in ("data.root=mine", "data={root: mine}", f"data.root={tmp_path / 'mine'}"):
        assert cell(path, words).config["data"]["root"].endswith("mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cell(suite_in(tmp_path / "suites", "~/mine")).root is None
    assert "no such home" in refused(suite_in(tmp_path / "suites", "~nobody-of-that-name/mine"))


def test_the_place_of_a_root_that_is_not_there_is_where_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "suites/mine")
    path = suite_in(tmp_path / "suites", "mine")
    assert refused(path, "data.root=nowhere").startswith("--set data.root=nowhere: nowhere does not exist")
    line = path.read_text().partition("root")[0].count("\n") + 1
    assert refused(suite_in(tmp_path / "suites", "gone")).startswith(f"{path}:{line}:")


def refused(path: Path, *words: str) -> str:
    with pytest.raises(UserError) as caught:
        cell(path, *words)
    return str(caught.value)


def test_a_root_that_was_relative_to_the_current_folder_is_told_as_it_must_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "pictures")
    said = refused(suite_in(tmp_path / "suites", "pictures"))
    assert "suites/pictures does not exist" in said and said.endswith("is, from there, ../pictures")


def test_workers_and_whoever_reopens_a_cell_find_the_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "work/pictures")
    found = cell(suite_in(tmp_path / "work/suites", "../pictures"))
    monkeypatch.chdir("/")
    manifest = worker.run(CellJob(tmp_path / found.id, found.manifest(), "cpu", [str(TINY)]))
    assert manifest["status"] == "finished", manifest["reason"]
    assert manifest["config"]["data"]["root"] == "../pictures"
    trial, _ = reopen(tmp_path / found.id, Registry([str(TINY)]))
    assert trial.dataset.domains == ("one", "two")
