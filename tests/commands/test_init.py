"""fedbench init: a study that runs as it was written."""

import json
import re
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest
from command import fedbench

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load


@pytest.mark.slow
def test_a_new_study_keeps_its_contract_and_says_how_it_is_run(tmp_path):
    assert "fedbench run suite.yaml --plugin my_allocation.py" in fedbench("init", "my study", cwd=tmp_path).output
    done = fedbench("plugins", "check", "my_allocation.py", cwd=tmp_path / "my study")
    assert done.exit_code == 0 and done.output.startswith("ok ")


@pytest.mark.slow
def test_a_new_study_runs_unedited(tmp_path):
    fedbench("init", "my study", cwd=tmp_path)
    study = tmp_path / "my study"
    small = ["--set", "train.rounds=1", "--set", "train.max_steps=1", "--set", "evaluation.metrics=[loss]"]
    done = fedbench("run", "suite.yaml", "--plugin", "my_allocation.py", "--method", "mine", *small, cwd=study)
    assert done.exit_code == 0, done.output
    assert "fedbench plugins check" not in done.output  # nothing was noticed of it
    assert "fedbench compare results/my_study --metric loss" in done.output
    assert (study / "results/my_study/index.json").is_file()


def test_its_suite_compares_the_idea_with_what_is_published(tmp_path):
    fedbench("init", "study", cwd=tmp_path)
    registry = Registry([str(tmp_path / "study/my_allocation.py")])
    cells = load(tmp_path / "study/suite.yaml", registry).points()
    assert [cell.method for cell in cells] == ["mine", "fedra", "inclusivefl", "head_only"]
    assert cells[0].config["method"]["allocation"] == {"name": "my_allocation"}
    assert (tmp_path / "study/README.md").read_text().count("\n") <= 6


def test_editors_know_the_idea_by_a_schema_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    fedbench("init", "study", cwd=tmp_path)
    assert {file.name for file in (tmp_path / "study").iterdir()} == {"README.md", "my_allocation.py", "suite.yaml"}
    suite = (tmp_path / "study/suite.yaml").read_text()
    address = re.search(r"^# yaml-language-server: \$schema=(.+)$", suite, re.MULTILINE)[1]
    schema = Path(url2pathname(urlparse(address).path))
    assert schema.is_relative_to(tmp_path / "cache")
    names = json.loads(schema.read_text())["$defs"]["allocation_name"]["anyOf"]
    assert {"my_allocation", "random"} <= {name.get("const") for name in names}


@pytest.mark.parametrize("kind", ["method", "dataset", "tracker"])  # all kinds as packages: test_plugins_new.py
def test_a_study_begins_with_an_idea_of_another_kind(tmp_path, kind):
    done = fedbench("init", "my study", "--kind", kind, cwd=tmp_path)
    plugin, study = f"my_{kind}.py", tmp_path / "my study"
    assert done.exit_code == 0 and f"fedbench plugins check {plugin}" in done.output
    assert {file.name for file in study.iterdir()} == {"README.md", plugin, "suite.yaml"}
    for file in study.iterdir():
        assert not any(word in file.read_text() for word in ("NAME", "MODULE", "STUDY", "METHODS", "RUN", "KIND")), file
    registry = Registry([str(study / plugin)])
    suite = load(study / "suite.yaml", registry)
    assert suite.name == "my_study" and suite.points()
    assert kind == "tracker" or f"my_{kind}" in registry.catalogue.components[kind]


def test_a_kind_that_is_none_is_told(tmp_path):
    done = fedbench("init", "study", "--kind", "metod", cwd=tmp_path)
    assert done.exit_code == 2 and "there is no 'metod'; did you mean \"method\"?" in done.output


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "suite.yaml").write_text("mine")
    done = fedbench("init", ".", cwd=tmp_path)
    assert done.exit_code == 2 and "suite.yaml: already there" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["suite.yaml"]


@pytest.mark.parametrize("folder", ["/", "__", "..."])
def test_a_folder_without_a_name_is_told(tmp_path, folder):
    done = fedbench("init", folder, cwd=tmp_path)
    assert done.exit_code == 2 and "is called after its folder" in done.output
