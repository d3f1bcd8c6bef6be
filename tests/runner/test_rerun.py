"""Finished cells: the same whoever computes them, kept by the next run, and computed again where a file is torn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import TINY, cell_of, fedbench, loosen, manifests, run, write_suite

from fedbench.results import content_hash, load
from fedbench.results.files import digest_of_cell


@pytest.fixture(scope="module")
def good(tmp_path_factory, own_cache):
    """Two cells by two workers, finished: their folder."""
    folder = tmp_path_factory.mktemp("good")
    write_suite(folder, "fedra, allsmall")
    done = run("--jobs", 2, "--quiet", cwd=folder)
    assert (done.exit_code, done.output) == (0, "")
    return folder


def test_results_do_not_depend_on_jobs_or_on_the_order_of_cells(good, tmp_path):
    """Each alone here, the first of them shared out among three processes."""
    write_suite(tmp_path, "allsmall, fedra")
    assert run("--jobs", 3, "--quiet", "--method", "fedra", cwd=tmp_path).exit_code == 0
    assert run("--jobs", 1, "--quiet", "--method", "allsmall", cwd=tmp_path).exit_code == 0
    assert sorted(_tables(tmp_path)) == sorted(_tables(good))


def _tables(folder: Path) -> list[str]:
    return [f"{r.entry.cell} {digest_of_cell(r.folder, r.manifest)}" for r in load([folder / "r"])]


def test_force_runs_finished_cells_again_with_the_same_result(good):
    before, started = content_hash(good / "r"), manifests(good / "r")["fedra/0"]
    done = run("--force", "--method", "fedra", "--json", cwd=good)
    assert json.loads(done.stdout)["ran"] == 1
    assert content_hash(good / "r") == before
    assert manifests(good / "r")["fedra/0"] != started


def test_a_finished_cell_with_a_torn_file_is_computed_again_and_no_other(good):
    before, kept = content_hash(good / "r"), manifests(good / "r")["allsmall/0"]
    loosen(good / "r/tiny")
    file, told = cell_of(good / "r", "fedra") / "eval.parquet", "eval.parquet: torn"
    file.write_bytes(file.read_bytes()[:-10])
    refused = fedbench("compare", "r", cwd=good)
    assert refused.exit_code == 1 and told in refused.stderr
    assert "Run the whole suite again" in refused.stderr
    rows = json.loads(
        fedbench("plan", "tiny.yaml", "--plugin", TINY, "--results", "r", "--format", "json", cwd=good).stdout
    )
    assert [row["status"] for row in rows["cells"]] == ["damaged", "finished"]
    done = run(cwd=good)
    assert done.exit_code == 0 and "1 already done, 1 to run" in done.stdout
    assert told in done.stdout
    assert content_hash(good / "r") == before
    assert manifests(good / "r")["allsmall/0"]["started"] == kept["started"]
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0


def test_a_deleted_state_is_no_damage_and_another_state_is(good):
    cell = cell_of(good / "r", "allsmall")
    (cell / "state.json").write_text("{}")
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 1
    for file in cell.glob("state.*"):
        file.unlink()
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0


def test_a_checkpoint_that_a_finished_cell_was_killed_with_is_removed(good):
    loosen(good / "r/tiny")
    left = cell_of(good / "r", "fedra") / "checkpoint" / "a"
    left.mkdir(parents=True)
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0
    assert not left.parent.exists()


@pytest.mark.parametrize("kind", ["exchange", "cells"])
def test_what_a_damaged_packed_table_held_is_computed_again_with_the_same_result(good, kind):
    before, hashed = manifests(good / "r"), content_hash(good / "r")
    (file,) = (good / "r/tiny").glob(f"{kind}-*.parquet")
    file.write_bytes(file.read_bytes()[:-10])
    done = run(cwd=good)
    assert done.exit_code == 0 and f"{file.name}: checksum mismatch" in done.stderr and "computed again" in done.stderr
    assert content_hash(good / "r") == hashed and not list((good / "r/tiny").glob("cells/*/eval.parquet"))
    assert all(manifests(good / "r")[name]["status"] == one["status"] for name, one in before.items())
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0


def test_a_suite_that_takes_the_names_of_another_says_what_it_replaces(good, tmp_path):
    good = Path(shutil.copytree(good, tmp_path / "good"))
    before = content_hash(good / "r")
    (good / "tiny.yaml").write_text((good / "tiny.yaml").read_text().replace("max_steps: 1", "max_steps: 2"))
    done = run("--method", "fedra", cwd=good)
    said = "1 result will no longer be shown, because this suite has other settings under the same names: "
    assert f"{said}small · fedra · seed 0 differs in config.train.max_steps." in done.stderr
    assert content_hash(good / "r") != before
    assert "no longer" not in run(cwd=good).stderr.replace(said + "small · allsmall", "")


@pytest.mark.parametrize("garbage", [b"\0\xff garbage", b"{}", b""])
def test_a_manifest_that_says_nothing_costs_its_cell_alone(good, garbage):
    before, kept = content_hash(good / "r"), manifests(good / "r")["allsmall/0"]
    loosen(good / "r/tiny")
    cell = cell_of(good / "r", "fedra")
    (cell / "manifest.json").write_bytes(garbage)
    done = run(cwd=good)
    assert done.exit_code == 0 and "1 already done, 1 to run" in done.stdout
    assert content_hash(good / "r") == before
    assert manifests(good / "r")["allsmall/0"]["started"] == kept["started"]


def test_a_new_results_folder_is_named_and_so_is_one_that_has_results_of_the_suite(tmp_path):
    write_suite(tmp_path)
    sub = tmp_path / "deeper"
    sub.mkdir()
    write_suite(sub)
    words = ("run", "tiny.yaml", "--plugin", TINY)
    first = fedbench(*words, "--quiet", cwd=tmp_path)
    assert first.exit_code == 0 and "Results go to" not in first.output
    done = fedbench(*words, cwd=sub)
    assert f"Results go to {sub}/results/tiny, which is new." in done.stderr
    assert (
        f"{tmp_path}/results/tiny has results of this suite; to go on there: --results {tmp_path}/results"
        in done.stderr
    )
    assert "Results go to" not in fedbench(*words, cwd=sub).output, "which is not new any more"
