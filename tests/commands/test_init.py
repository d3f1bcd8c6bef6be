"""fedbench init: a study that runs as it was written."""

import json
import re

import pytest
from command import fedbench

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load


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


def test_editors_know_the_idea(tmp_path):
    fedbench("init", "study", cwd=tmp_path)
    suite = (tmp_path / "study/suite.yaml").read_text()
    schema = tmp_path / "study" / re.search(r"^# yaml-language-server: \$schema=(.+)$", suite, re.MULTILINE)[1]
    names = json.loads(schema.read_text())["$defs"]["allocation_name"]["anyOf"]
    assert {"my_allocation", "random"} <= {name.get("const") for name in names}


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "suite.yaml").write_text("mine")
    done = fedbench("init", ".", cwd=tmp_path)
    assert done.exit_code == 2 and "suite.yaml: already there" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["suite.yaml"]


@pytest.mark.parametrize("folder", ["/", "__", "..."])
def test_a_folder_without_a_name_is_told(tmp_path, folder):
    done = fedbench("init", folder, cwd=tmp_path)
    assert done.exit_code == 2 and "is called after its folder" in done.output
