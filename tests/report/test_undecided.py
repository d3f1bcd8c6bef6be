"""What is said of methods that have nothing but candidates yet, and of folders without a cell."""

from __future__ import annotations

import json
import shutil

import pytest
from command import fedbench
from factories import cell_of, eval_rows, write_cell

from fedbench.results import merge_index
from fedbench.results.tuning import merge_tunings
from fedbench.types.tuning import Tuning

LR = "train.optimizer.lr"
TUNING = Tuning({LR: {"log": [0.01, 1]}}, [{LR: 0.1}, {LR: 0.2}], [1000], "accuracy", [0.5])
TOLD = "Only candidates so far, 1 of 4 tried, of s · mixed · fedra, depthfl; `fedbench compare tuning`"


@pytest.fixture
def folder(tmp_path):
    """A results folder in which fedra has tried one candidate of two, and depthfl has begun none."""
    suite = tmp_path / "r" / "s"
    for method in ("fedra", "depthfl"):
        for k, values in enumerate(TUNING.candidates):
            rows = eval_rows({6: {"a": 0.5}}, split="validation")
            told = {"train__optimizer": {"lr": values[LR]}, "candidate": k}
            cell = write_cell(suite, method, 1000, evaluation=rows, **told)
            if (method, k) != ("fedra", 0):
                shutil.rmtree(cell)
    merge_tunings(suite, "s", {("mixed", "", method): TUNING for method in ("fedra", "depthfl")})
    return tmp_path


@pytest.mark.parametrize("words", [(), ("boards",), ("summary",), ("costs",), ("ranks",), ("pairs",)])
def test_compare_says_that_there_are_only_candidates(folder, words):
    done = fedbench("compare", *words, "r", cwd=folder)
    assert (done.exit_code, done.stdout) == (0, "") and done.stderr.startswith(TOLD)


def test_programs_get_an_empty_list_and_people_the_reason(folder):
    done = fedbench("compare", "r", "--format", "json", cwd=folder)
    assert done.exit_code == 0 and json.loads(done.stdout)["rows"] == [] and done.stderr.startswith(TOLD)
    assert "1 of 2 tried, of s · mixed · fedra;" in fedbench("compare", "r", "--method", "fedra", cwd=folder).stderr


def test_what_reports_is_shown_and_what_is_only_tuned_is_told_below_it(folder):
    write_cell(folder / "r" / "s", "fedra", evaluation=eval_rows({12: {"a": 0.5}}))
    done = fedbench("compare", "r", cwd=folder)
    assert "fedra" in done.stdout and "depthfl" not in done.stdout
    assert done.stderr.startswith("Not begun: s · mixed · depthfl.")
    assert fedbench("report", "r", cwd=folder).exit_code == 0
    assert '"lacks":"Not begun: s' in (folder / "report.html").read_text()


def test_no_page_is_written_of_candidates_alone(folder):
    done = fedbench("report", "r", cwd=folder)
    assert done.exit_code == 2 and TOLD in done.stderr and not (folder / "report.html").exists()


def test_a_method_whose_candidates_have_not_begun_stands_among_the_others(folder):
    told = fedbench("compare", "tuning", "r", cwd=folder)
    assert told.exit_code == 0 and "depthfl: no candidate has begun" in told.stdout
    assert "2 candidates, halved after round 6 of 12 rounds" in told.stdout
    assert "fedra: 1 of 2 candidates without a score" in " ".join(told.stdout.split())
    records = json.loads(fedbench("compare", "tuning", "r", "--format", "json", cwd=folder).stdout)["rows"]
    assert [r["validation"] for r in records if r["method"] == "depthfl"] == [None, None]
    shutil.rmtree(cell_of(folder / "r" / "s", "fedra", 1000))
    assert "fedra: no candidate has begun" in fedbench("compare", "tuning", "r", cwd=folder).stdout


def test_a_folder_without_a_cell_says_so(tmp_path):
    merge_index(tmp_path / "r" / "s", "s", [])
    for words in ((), ("tuning",)):
        done = fedbench("compare", *words, "r", cwd=tmp_path)
        assert (done.exit_code, done.stdout) == (0, "") and done.stderr.startswith("r: no cells; ")
