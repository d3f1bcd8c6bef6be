"""Whole runs with real processes: what becomes of each cell, what is retried, and what fails alone."""

from __future__ import annotations

import json
import re

import pytest
from command import NOTING, TINY, cell_of, fedbench, manifests, run, write_suite, written

METHODS = """
  fedra, {name: same, extends: fedra, missing_layers: keep}, allsmall,
  {name: raises, extends: odd, how: raise}, {name: exits, extends: odd, how: exit},
  {name: dies, extends: odd, how: segfault},
  {name: diverges, extends: odd, how: diverge},
  {name: senseless, extends: odd, how: not_applicable}
"""

BROKE = (
    r"RuntimeError: it broke \(tiny_plugin\.py:\d+\), in .*the method 'odd'.*; "
    r"to check it: fedbench plugins check tiny_plugin\.py"
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, own_cache):
    """One run of everything that can happen to a cell: (folder, how it ended, the notes of the life-cycle hooks)."""
    folder = tmp_path_factory.mktemp("mixed")
    write_suite(folder, METHODS)
    for plugin in (TINY, NOTING):
        (folder / plugin.name).write_text(plugin.read_text())
    plugins = ("--plugin", TINY.name, "--plugin", NOTING.name)
    done = fedbench("run", "tiny.yaml", *plugins, "--results", "r", "--jobs", 2, cwd=folder)
    return folder, done, (folder / "notes.txt").read_text().splitlines()


def test_every_bad_cell_is_one_row_with_its_reason_and_the_others_finish(mixed):
    folder, done, _ = mixed
    found = {name.split("/")[0]: (m["status"], m["reason"]) for name, m in manifests(folder / "r").items()}
    assert found["fedra"] == found["same"] == found["allsmall"] == ("finished", None)
    assert found["raises"][0] == "failed"
    assert re.fullmatch(BROKE, found["raises"][1])
    assert found["exits"] == ("failed", "the worker process ended with exit code 7")
    assert found["dies"] == ("failed", "the worker process was killed by SIGSEGV")
    assert found["diverges"] == ("failed", "the training loss of client 0 in round 1 is nan")
    assert found["senseless"] == ("not_applicable", "it has no meaning here")
    assert done.exit_code == 1


def test_a_raising_method_leaves_its_traceback_in_the_manifest_and_not_on_the_screen(mixed):
    folder, done, _ = mixed
    found = manifests(folder / "r")
    assert "it broke" in found["raises/0"]["traceback"]
    assert found["exits/0"]["exit_code"] == 7 and found["dies/0"]["signal"] == "SIGSEGV"
    assert "Traceback" not in done.stdout + done.stderr


def test_equal_cells_run_once_and_appear_under_both_names(mixed):
    folder, done, _ = mixed
    index = json.loads((folder / "r" / "tiny" / "index.json").read_text())
    cells = {entry["method"]: entry["cell"] for entry in index["entries"]}
    assert cells["fedra"] == cells["same"]
    assert "7 cells under 8 names" in done.stdout
    board = fedbench("compare", "r", "--format", "csv", cwd=folder).stdout
    assert ",same," in board and ",fedra," in board


def test_life_cycle_hooks_are_called_in_their_processes(mixed):
    _, _, notes = mixed
    assert notes[0] == "suite_started tiny 7"
    assert notes[-1].startswith("suite_finished ") and notes[-1].count(" finished") == 2
    assert "cell_started fedra" in notes
    assert {"round_finished 1 2", "round_finished 2 2"} <= set(notes)  # two clients a round
    assert "cell_finished finished 4" in notes and "cell_finished failed 0" in notes  # two rounds, two domains


def test_a_second_run_keeps_all_and_retry_failed_runs_only_the_failed(mixed):
    folder, _, _ = mixed
    before = manifests(folder / "r")
    raising = cell_of(folder / "r", "raises") / "manifest.json"
    written = raising.stat().st_mtime_ns
    again = run("--method", "fedra", "--method", "raises", cwd=folder)
    assert again.exit_code == 1 and "2 already done, 0 to run" in again.stdout
    assert manifests(folder / "r") == before
    retried = run("--retry-failed", "--method", "fedra", "--method", "raises", "--json", cwd=folder)
    after = manifests(folder / "r")
    assert json.loads(retried.stdout)["ran"] == 1
    assert after["fedra/0"] == before["fedra/0"]
    assert raising.stat().st_mtime_ns > written


def test_no_temporary_file_is_left(mixed):
    folder, _, _ = mixed
    assert not [path for path in (folder / "r").rglob("*") if path.suffix == ".tmp"]


def test_a_cell_that_ends_as_it_is_asked_to_at_its_deadline_is_out_of_time_all_the_same(tmp_path):
    """A worker takes SIGTERM for an interruption, after which the next run would go on without end."""
    write_suite(tmp_path, "chained")
    assert run("--timeout", 1, "--set", "train.rounds=30000", cwd=tmp_path).exit_code == 1
    manifest = manifests(tmp_path / "r")["chained/0"]
    assert (manifest["status"], manifest["reason"]) == ("timeout", "not done after 1 s")


def test_max_failures_starts_no_more_cells(tmp_path):
    write_suite(tmp_path, "{name: raises, extends: odd, how: raise}, {name: exits, extends: odd, how: exit}, fedra")
    done = run("--max-failures", 1, "--jobs", 1, cwd=tmp_path)
    assert done.exit_code == 1
    assert "Stopped by --max-failures; 2 cells left" in done.stdout
    assert re.search(r"^1 cell in [\d.]+ s$", done.stdout, re.MULTILINE)
    assert len(written(tmp_path / "r")) == 1


def test_a_stale_manifest_is_not_taken_for_the_outcome_of_a_worker_that_died(tmp_path):
    flag = tmp_path / "fine"
    flag.touch()
    write_suite(tmp_path, f"{{name: exits, extends: odd, how: exit, until: {flag}}}")
    assert run(cwd=tmp_path).exit_code == 0
    flag.unlink()
    done = run("--force", cwd=tmp_path)
    assert done.exit_code == 1
    assert manifests(tmp_path / "r")["exits/0"]["status"] == "failed"
