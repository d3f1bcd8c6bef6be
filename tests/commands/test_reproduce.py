"""fedbench reproduce: from a results folder to a verdict on each cell."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from command import TINY, fedbench, run, write_suite
from factories import eval_rows, write_cell

from fedbench.results import load, merge_index, read_manifest, write_manifest, write_rows
from fedbench.results.files import described


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of a tiny suite with two methods and two seeds."""
    folder = tmp_path_factory.mktemp("made")
    own = "fedra, {name: mine, extends: fedra, aggregator: {weights: uniform}}"
    changes = {"methods:": "seeds: [0, 1]\nmethods:"}
    write_suite(folder, own, changes)
    assert run("--quiet", cwd=folder).exit_code == 0
    return folder


def reproduce(folder, source, *words):
    done = fedbench("reproduce", source, "--plugin", TINY, "--format", "json", "--quiet", *words, cwd=folder)
    assert done.stdout, done.output
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.slow
def test_a_folder_is_run_again_to_the_bit(made, tmp_path):
    code, told = reproduce(tmp_path, made / "r")
    assert code == 0 and Counter(row["change"] for row in told["rows"]) == {"equal": 4}
    assert told["settings"] == []
    names = {(c["scenario"], c["variant"], c["method"], c["seed"]) for c in told["rows"]}
    assert len(names) == 4 and {c["method"] for c in told["rows"]} == {"fedra", "mine"}
    again = fedbench("compare", "changes", made / "r", tmp_path / "reproduced", cwd=tmp_path)
    assert again.exit_code == 0, again.output  # the same cells under the same names


def with_other_scores(source, folder, by):
    """A copy of results whose scores are larger, unpacked, as their own run could have written them."""
    for result in load([source]):
        manifest, place = dict(read_manifest(result.folder)), folder / "cells" / result.entry.cell
        for packed in ("tables", "digest"):
            manifest.pop(packed, None)
        write_rows(place, "eval", [{**row, "value": row["value"] + by} for row in result.table("eval").to_pylist()])
        write_rows(place, "rounds", result.table("rounds").to_pylist())
        write_manifest(place, {**manifest, "files": described(place)})
        merge_index(folder, folder.name, [result.entry])
    return folder


def test_a_sample_of_a_folder_is_run_and_a_changed_number_found(made, tmp_path):
    code, told = reproduce(tmp_path, made / "r", "--cells", "1", "--seed", "1")
    assert (code, [row["change"] for row in told["rows"]]) == (0, ["equal"])
    (suite,) = (made / "r").iterdir()
    source = with_other_scores(suite, tmp_path / "source" / suite.name, 5.0)
    code, told = reproduce(tmp_path, source, "--cells", "1", "--seed", "1")  # kept from before
    cells = [row for row in told["rows"] if row["change"] == "different"]
    assert code == 1 and len(cells) == 1
    assert cells[0]["difference"] == pytest.approx(-5.0)
    done = fedbench("reproduce", source, "--plugin", TINY, "--cells", "1", "--seed", "1", cwd=tmp_path)
    assert done.exit_code == 1 and "cells whose tables differ" in done.stdout and "1 different" in done.stdout


def test_what_differs_here_is_said_before_anything_runs(made, tmp_path):
    done = fedbench("reproduce", made / "r", "--no-run", "--plugin", TINY, cwd=tmp_path)
    assert done.exit_code == 0 and "are those of the source" in done.stdout and "4 cells" in done.stdout
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    code, told = reproduce(tmp_path, tmp_path / "s", "--no-run")
    settings = {one["what"]: one["before"] for one in told["differs_here"]}
    assert code == 0 and settings["versions.fedbench"] == "0.1.0" and settings["machine.cpu"] == "any"


def test_a_component_that_is_not_here_is_said_and_the_others_run(made, tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    write_cell(tmp_path / "s", "theirs", evaluation=eval_rows({1: {"a": 0.5}}))
    code, told = reproduce(tmp_path, tmp_path / "s", "--no-run")
    assert code == 1 and [one["cell"] for one in told["cannot_run"]] == ["s · mixed · theirs · seed 0"]
    assert "theirs" in told["cannot_run"][0]["reason"]


def test_what_is_no_results_folder_is_refused(tmp_path):
    (tmp_path / "report.html").write_text("<html>")
    for source, why in (("nope", "nope: not there"), ("report.html", "report.html: not a folder")):
        done = fedbench("reproduce", source, cwd=tmp_path)
        assert done.exit_code == 2 and why in done.stderr and "Traceback" not in done.stderr


def test_the_source_is_not_written_over(made):
    done = fedbench("reproduce", "r", "--results", "r", "--plugin", TINY, cwd=made)
    assert done.exit_code == 2 and "r is SOURCE" in done.stderr
