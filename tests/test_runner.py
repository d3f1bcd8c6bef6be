"""Whole runs with real processes: what is kept, what is retried, what fails alone, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from command import MAIN, TINY, environment, fedbench, run, write_suite

from fedbench.results import content_hash, load
from fedbench.runner import Options

METHODS = """
  fedra, {name: same, extends: fedra, missing_layers: keep}, allsmall,
  {name: raises, extends: odd, how: raise}, {name: exits, extends: odd, how: exit},
  {name: dies, extends: odd, how: segfault},
  {name: diverges, extends: odd, how: diverge},
  {name: senseless, extends: odd, how: not_applicable}
"""
GOOD = "fedra, allsmall, head_only"


def manifests(folder: Path) -> dict[str, dict]:
    """The manifest of every name in the index of a results folder's suite."""
    index = json.loads((folder / "tiny" / "index.json").read_text())
    return {
        f"{entry['method']}/{entry['seed']}": json.loads(
            (folder / "tiny" / entry["cell"] / "manifest.json").read_text()
        )
        for entry in index["entries"]
    }


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, own_cache):
    """One run of everything that can happen to a cell: (folder, how it ended, the notes of the life-cycle hooks)."""
    folder = tmp_path_factory.mktemp("mixed")
    write_suite(folder, METHODS)
    plugin, notes = folder / "tiny_plugin.py", folder / "notes.txt"
    plugin.write_text(TINY.read_text())
    notes.touch()
    done = fedbench("run", "tiny.yaml", "--plugin", plugin, "--results", "r", "--jobs", 2, cwd=folder)
    return folder, done, notes.read_text().splitlines()


def test_every_bad_cell_is_one_row_with_its_reason_and_the_others_finish(mixed):
    folder, done, _ = mixed
    found = {name.split("/")[0]: (m["status"], m["reason"]) for name, m in manifests(folder / "r").items()}
    assert found["fedra"] == found["same"] == found["allsmall"] == ("finished", None)
    assert found["raises"] == ("failed", "RuntimeError: it broke")
    assert found["exits"] == ("failed", "the worker process ended with exit code 7 before it was done")
    assert found["dies"] == ("failed", "the worker process was ended by SIGSEGV")
    assert found["diverges"] == ("failed", "the training loss of client 0 in round 1 is nan")
    assert found["senseless"] == ("not_applicable", "it has no meaning here")
    assert done.exit_code == 1


def test_a_raising_method_leaves_its_traceback_in_the_manifest_and_not_on_the_screen(mixed):
    folder, done, _ = mixed
    assert "it broke" in manifests(folder / "r")["raises/0"]["traceback"]
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
    again = run("--method", "fedra", "--method", "raises", cwd=folder)
    assert again.exit_code == 1 and "2 already done, 0 to run" in again.stdout
    assert manifests(folder / "r") == before
    retried = run("--retry-failed", "--method", "fedra", "--method", "raises", "--json", cwd=folder)
    after = manifests(folder / "r")
    assert json.loads(retried.stdout)["ran"] == 1
    assert after["fedra/0"] == before["fedra/0"]
    assert after["raises/0"]["seconds"] != before["raises/0"]["seconds"]


def test_no_temporary_file_is_left(mixed):
    folder, _, _ = mixed
    assert not [path for path in (folder / "r").rglob("*") if path.suffix == ".tmp"]


def test_a_hanging_cell_is_ended_at_its_deadline(tmp_path):
    write_suite(tmp_path, "{name: hangs, extends: odd, how: hang}")
    began = time.monotonic()
    assert run("--timeout", 1, cwd=tmp_path).exit_code == 1
    assert time.monotonic() - began < 60
    manifest = manifests(tmp_path / "r")["hangs/0"]
    assert (manifest["status"], manifest["reason"]) == ("timeout", "not done after 1 seconds")


def test_a_cell_that_ends_as_it_is_asked_to_at_its_deadline_is_out_of_time_all_the_same(tmp_path):
    """A worker takes SIGTERM for an interruption, after which the next run would go on without end."""
    write_suite(tmp_path, "chained")
    assert run("--timeout", 1, "--set", "train.rounds=30000", cwd=tmp_path).exit_code == 1
    manifest = manifests(tmp_path / "r")["chained/0"]
    assert (manifest["status"], manifest["reason"]) == ("timeout", "not done after 1 seconds")


def test_only_a_not_applicable_cell_is_no_failure(tmp_path):
    write_suite(tmp_path, "{name: senseless, extends: odd, how: not_applicable}")
    done = run(cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "n/a" in done.stdout


@pytest.fixture(scope="module")
def good(tmp_path_factory, own_cache):
    """Two cells by two workers, finished: their folder."""
    folder = tmp_path_factory.mktemp("good")
    write_suite(folder, "fedra, allsmall")
    done = run("--jobs", 2, "--quiet", cwd=folder)
    assert (done.exit_code, done.output) == (0, "")
    return folder


def test_results_do_not_depend_on_jobs_or_on_the_order_of_cells(good, tmp_path):
    write_suite(tmp_path, "allsmall, fedra")
    assert run("--jobs", 1, "--quiet", cwd=tmp_path).exit_code == 0
    assert sorted(_tables(tmp_path)) == sorted(_tables(good))


def _tables(folder: Path) -> list[str]:
    return [f"{cell.name} {content_hash(cell)}" for cell in (folder / "r" / "tiny").iterdir() if cell.is_dir()]


def test_refused_uploads_are_recorded_whatever_the_jobs(good, tmp_path):
    write_suite(tmp_path, "fedra, {name: middle, extends: fedra, aggregator: coordinate_median}")
    words = ("run", "tiny.yaml", "--plugin", TINY, "--quiet", "--set", "faults.corrupted={probability: 0.5, kind: nan}")
    for jobs in (1, 2):
        done = fedbench(*words, "--jobs", jobs, "--results", f"r{jobs}", cwd=tmp_path)
        assert done.exit_code == 0, done.stdout + done.stderr
    assert content_hash(tmp_path / "r1") == content_hash(tmp_path / "r2")
    cells = load([tmp_path / "r1"])
    for cell in cells:
        uploads, rounds = cell.uploads.to_pylist(), cell.rounds.to_pylist()
        assert {(row["corrupted"], row["rejected"]) for row in uploads} == {("nan", "not finite")}
        lost = [(row["round"], row["client"]) for row in rounds if not row["arrived"]]
        assert lost == [(row["round"], row["client"]) for row in uploads]
        assert all(0 <= row["value"] <= 1 for row in cell.eval.to_pylist())
    assert len(cells) == 2 and cells[0].uploads == cells[1].uploads
    assert not list((good / "r").rglob("uploads.parquet"))


def test_force_runs_finished_cells_again_with_the_same_result(good):
    before, started = content_hash(good / "r"), manifests(good / "r")["fedra/0"]
    done = run("--force", "--method", "fedra", "--json", cwd=good)
    assert json.loads(done.stdout)["ran"] == 1
    assert content_hash(good / "r") == before
    assert manifests(good / "r")["fedra/0"] != started


def spoil(name, how):
    def change(cell):
        file = cell / name
        file.write_bytes(how(file.read_bytes())) if how else file.unlink()

    return change


TORN = {
    "truncated": (spoil("eval.parquet", lambda content: content[:-10]), "eval.parquet: torn"),
    "empty": (spoil("rounds.parquet", lambda content: b""), "rounds.parquet: torn (0 bytes, and not "),
    "flipped": (spoil("layers.parquet", lambda content: content[:9] + b"?" + content[10:]), "its hash is another"),
    "missing": (spoil("eval.parquet", None), "eval.parquet: missing."),
    "another state": (spoil("state.json", lambda content: content + b" "), "state.json: torn"),
}


@pytest.mark.parametrize("name", TORN)
def test_a_finished_cell_with_a_torn_file_is_computed_again_and_no_other(good, name):
    spoil_it, told = TORN[name]
    before, kept = content_hash(good / "r"), manifests(good / "r")["allsmall/0"]
    spoil_it(next((good / "r/tiny").glob("small-fedra-*")))
    if "eval" in told:
        refused = fedbench("compare", "r", cwd=good)
        assert refused.exit_code == 2 and told in refused.stderr and "Run the suite again" in refused.stderr
    rows = json.loads(fedbench("plan", "tiny.yaml", "--plugin", TINY, "--results", "r", "--json", cwd=good).stdout)
    assert [row["status"] for row in rows["cells"]] == ["damaged", "finished"]
    done = run(cwd=good)
    assert done.exit_code == 0 and "1 already done, 1 to run" in done.stdout
    assert told in done.stdout
    assert content_hash(good / "r") == before
    assert manifests(good / "r")["allsmall/0"] == kept
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0


def test_a_deleted_state_and_a_manifest_without_files_are_no_damage(good):
    cell = next((good / "r/tiny").glob("small-allsmall-*"))
    for file in cell.glob("state.*"):
        file.unlink()
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0
    manifest = json.loads((cell / "manifest.json").read_text())
    del manifest["files"]
    (cell / "manifest.json").write_text(json.dumps(manifest))
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0
    (cell / "rounds.parquet").write_bytes(b"")
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 1


def test_a_checkpoint_that_a_finished_cell_was_killed_with_is_removed(good):
    left = next((good / "r/tiny").glob("small-fedra-*")) / "checkpoint" / "a"
    left.mkdir(parents=True)
    assert json.loads(run("--json", cwd=good).stdout)["ran"] == 0
    assert not left.parent.exists()


def test_a_papers_numbers_lie_beside_the_index_as_the_suite_now_has_them(tmp_path):
    path = tmp_path / "r/tiny/expected.json"
    senseless = "{name: senseless, extends: odd, how: not_applicable}"
    write_suite(tmp_path, senseless)
    assert run("--quiet", cwd=tmp_path).exit_code == 0 and not path.exists()
    for value in (86.48, 12.5):
        row = f"{{dataset: nicopp, backbone: vit, method: senseless, metric: average, value_percent: {value}}}"
        write_suite(tmp_path, senseless, {"suite: tiny": f"suite: tiny\nexpected: [{row}]"})
        assert json.loads(run("--json", cwd=tmp_path).stdout)["ran"] == 0
        (found,) = json.loads(path.read_text())["expected"]
        assert (found["scenario"], found["value_percent"]) == ("small", value)
    assert "fedbench compare r/tiny --paper" in run(cwd=tmp_path).stdout


def test_max_failures_starts_no_more_cells(tmp_path):
    write_suite(tmp_path, "{name: raises, extends: odd, how: raise}, {name: exits, extends: odd, how: exit}, fedra")
    done = run("--max-failures", 1, "--jobs", 1, cwd=tmp_path)
    assert done.exit_code == 1
    assert "Stopped by --max-failures; 2 cells left" in done.stdout
    assert len(list((tmp_path / "r" / "tiny").glob("*/manifest.json"))) == 1


def test_a_stale_manifest_is_not_taken_for_the_outcome_of_a_worker_that_died(tmp_path):
    flag = tmp_path / "fine"
    flag.touch()
    write_suite(tmp_path, f"{{name: exits, extends: odd, how: exit, until: {flag}}}")
    assert run(cwd=tmp_path).exit_code == 0
    flag.unlink()
    done = run("--force", cwd=tmp_path)
    assert done.exit_code == 1
    assert manifests(tmp_path / "r")["exits/0"]["status"] == "failed"


def test_an_interrupted_run_kills_its_workers_and_a_second_one_completes_it(tmp_path):
    flag = tmp_path / "fine"
    write_suite(tmp_path, f"allsmall, {{name: hangs, extends: odd, how: hang, until: {flag}}}")
    words = [*MAIN, "run", "tiny.yaml", "--plugin", str(TINY), "--results", "r", "--jobs", "2"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell lets what it starts in the background ignore Ctrl-C, and these tests may have been started so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        _wait_until(lambda: _statuses(tmp_path) == {"finished", "running"}, process)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Interrupted" in err and "Traceback" not in out + err
    psutil.wait_procs(started, timeout=10)
    assert not [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not list((tmp_path / "r").rglob("*.tmp"))

    flag.touch()
    done = run("--json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["ran"] == 1


def _statuses(folder: Path) -> set[str]:
    return {json.loads(file.read_text())["status"] for file in (folder / "r" / "tiny").glob("*/manifest.json")}


def _wait_until(true, process, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the run did not get there"
        time.sleep(0.1)


def test_a_broken_tracker_is_named_and_spoils_no_result(tmp_path):
    (tmp_path / "tracker.py").write_text(
        "from fedbench import hookimpl\n\n"
        "@hookimpl\ndef fedbench_suite_started(suite):\n    raise OSError('no server')\n"
    )
    write_suite(tmp_path, "allsmall")
    done = run("--plugin", "tracker.py", cwd=tmp_path)
    assert done.exit_code == 0
    assert "fedbench_suite_started broke: OSError: no server" in done.stderr


def test_a_script_without_a_main_guard_can_call_run(tmp_path):
    write_suite(tmp_path, "allsmall")
    (tmp_path / "script.py").write_text(
        f"import fedbench\nprint(fedbench.run('tiny.yaml', plugins=[{str(TINY)!r}], results='r').counts)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "Counter({'finished': 1})", done.stderr


def test_data_faults_end_the_run_before_the_first_cell(tmp_path):
    _image_tree(tmp_path / "pictures")
    (tmp_path / "pictures/one/a/0.png").write_bytes(b"no image")
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: image_folder, root: pictures, unreadable: fail}"})
    done = run(cwd=tmp_path)
    assert done.exit_code == 2
    assert "pictures/one/a/0.png: not an image" in done.stderr
    assert not (tmp_path / "r").exists()
    assert run("--set", "data.unreadable=skip", cwd=tmp_path).exit_code == 0


def _image_tree(root: Path) -> None:
    from PIL import Image

    for i, place in enumerate(f"{d}/{c}" for d in ("one", "two") for c in "ab"):
        (root / place).mkdir(parents=True)
        for k in range(4):
            Image.new("RGB", (8, 8), (40 * i, 60 * k, 0)).save(root / place / f"{k}.png")


def test_too_few_capacities_for_the_clients_a_partition_makes(tmp_path):
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: dots, partition: halves}"})
    done = run(cwd=tmp_path)
    assert done.exit_code == 2, done.output
    assert "2 values for 4 clients" in done.stderr
    assert not os.path.exists(tmp_path / "r")


LISTING = """
import json
from fedbench import hookimpl

def listing(workers, timeout):
    def execute(jobs, on_event):
        print("PROCESSES", workers, [json.loads(job)["processes"] for job in jobs])
    return execute

@hookimpl
def fedbench_register_executors(register):
    register("listing", listing)
"""


def tiny_suite(folder: Path, methods: str) -> tuple[str, ...]:
    """A suite and the plugin it needs; returns the words that run it with one seed."""
    write_suite(folder, methods)
    (folder / "tiny_plugin.py").write_text(TINY.read_text())
    return "run", "tiny.yaml", "--plugin", "tiny_plugin.py", "--seed", "0", "--device", "cpu"


LAZY = """
import json
from pathlib import Path
from fedbench import hookimpl
from fedbench.results import write_manifest

def lazy(workers, leaves: str = ""):
    def execute(jobs, on_event):
        for job in map(json.loads, jobs if leaves else ()):
            if leaves != "pending":
                write_manifest(Path(job["folder"]), {**job["manifest"], "status": leaves})
    return execute

@hookimpl
def fedbench_register_executors(register):
    register("lazy", lazy)
"""


@pytest.mark.parametrize(
    ("leaves", "told"),
    [("pending", "Ended before all was computed"), ("running", "Ended before all was computed"),
     ("interrupted", "Broken off from outside")],
)  # fmt: skip
def test_cells_that_an_executor_leaves_undone_are_counted_as_left(tmp_path, leaves, told):
    words = (*tiny_suite(tmp_path, "fedra, allsmall"), "--plugin", "lazy.py", "--max-failures", 5)
    (tmp_path / "lazy.py").write_text(LAZY)
    words = (*words, "--executor", f"{{name: lazy, leaves: {leaves}}}")
    done = fedbench(*words, cwd=tmp_path)
    assert done.exit_code == 1 and f"{told}; 2 cells left, which the same command runs." in done.stdout
    done = fedbench(*words, "--json", cwd=tmp_path)
    assert done.exit_code == 1 and json.loads(done.stdout)["left"] == 2


def test_an_executor_that_asks_for_no_cell_is_named(tmp_path):
    words = tiny_suite(tmp_path, "fedra, allsmall")
    (tmp_path / "lazy.py").write_text(LAZY)
    done = fedbench(*words, "--plugin", "lazy.py", "--executor", "lazy", cwd=tmp_path)
    assert done.exit_code == 2
    assert "--executor lazy: it returned without asking for a cell, though 2 of them" in done.stderr
    assert not list((tmp_path / "results").rglob("*.claim"))


def test_an_end_that_is_told_twice_counts_once(tmp_path):
    words = tiny_suite(tmp_path, "fedra, {name: raises, extends: odd, how: raise}")
    twice = IN_PROCESS.replace("**told})", "**told}); on_event({'event': 'ended', 'folder': job['folder'], **told})")
    (tmp_path / "twice.py").write_text(twice)
    words = (*words, "--plugin", "twice.py", "--executor", "in_process")
    done = fedbench(*words, "--max-failures", 2, cwd=tmp_path)
    assert done.exit_code == 1 and "cells failed" not in done.stdout and "1 cell failed" in done.stdout, done.stderr
    assert "[2/2]" in done.stdout and "[3/2]" not in done.stdout


LIMITED = """
from fedbench import hookimpl

def limited(timeout, memory_limit):
    return lambda jobs, on_event: print("LIMITS", timeout, memory_limit, len(list(jobs)))

@hookimpl
def fedbench_register_executors(register):
    register("limited", limited)
"""


@pytest.mark.parametrize(
    ("suites", "given", "told"),
    [("", (), "None None"), ("\ntimeout: 600", (), "600 None"), ("\ntimeout: 600", ("--timeout", 5), "5.0 None"),
     ("", ("--memory-limit", "1.5GB"), "None 1500000000")],
)  # fmt: skip
def test_limits_are_the_command_lines_before_the_suites(tmp_path, suites, given, told):
    words = tiny_suite(tmp_path, "fedra")
    write_suite(tmp_path, "fedra", {"suite: tiny": f"suite: tiny{suites}"})
    (tmp_path / "limited.py").write_text(LIMITED)
    done = fedbench(*words, "--plugin", "limited.py", "--executor", "limited", *given, cwd=tmp_path)
    assert f"LIMITS {told} 1\n" in done.stdout, done.stderr


@pytest.mark.parametrize(("methods", "told"), [("fedra", "1 [8]"), (GOOD, "3 [2, 2, 2]")])
def test_cores_without_a_cell_of_their_own_are_shared_out(tmp_path, methods, told):
    words = tiny_suite(tmp_path, methods)
    (tmp_path / "listing.py").write_text(LISTING)
    done = fedbench(*words, "--plugin", "listing.py", "--executor", "listing", "--jobs", 8, cwd=tmp_path)
    assert f"PROCESSES {told}" in done.stdout, done.stderr


@pytest.mark.parametrize(("options", "told"), [((), (60.0, False)), (("--checkpoint", 5, "--force"), (5.0, True))])
def test_workers_are_told_how_often_to_keep_a_checkpoint_and_whether_to_use_one(tmp_path, options, told):
    words = tiny_suite(tmp_path, "fedra")
    asked = '[(job["checkpoint_every"], job["fresh"]) for job in map(json.loads, jobs)]'
    (tmp_path / "listing.py").write_text(LISTING.replace('[json.loads(job)["processes"] for job in jobs]', asked))
    done = fedbench(*words, *options, "--plugin", "listing.py", "--executor", "listing", cwd=tmp_path)
    assert str([told]) in done.stdout, done.stderr


def test_a_lone_cell_gives_the_same_bits_in_one_process_and_in_three(tmp_path):
    words = tiny_suite(tmp_path, "fedra")
    for jobs in (1, 3):
        done = fedbench(*words, "--jobs", jobs, "--results", f"r{jobs}", cwd=tmp_path)
        assert done.exit_code == 0, done.stdout + done.stderr
    assert content_hash(tmp_path / "r1" / "tiny") == content_hash(tmp_path / "r3" / "tiny")


IN_PROCESS = """
import json
from fedbench import hookimpl, worker

def in_process(workers, timeout):
    def execute(jobs, on_event):
        for job in map(json.loads, jobs):
            on_event({"event": "started", "folder": job["folder"]})
            end = worker.run(job)
            told = {key: end.get(key) for key in ("status", "reason", "seconds")}
            on_event({"event": "ended", "folder": job["folder"], **told})
    return execute

@hookimpl
def fedbench_register_executors(register):
    register("in_process", in_process)
"""


def test_a_cell_that_is_computed_in_the_users_own_process_is_not_shared_out(tmp_path, monkeypatch):
    """Torch may have used threads there already, and a copy of the process would wait for them for ever."""
    words = tiny_suite(tmp_path, "fedra")
    (tmp_path / "in_process.py").write_text(IN_PROCESS)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("the process was copied"))
    done = fedbench(*words, "--plugin", "in_process.py", "--executor", "in_process", "--jobs", 8, cwd=tmp_path)
    assert done.exit_code == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "workers", "gpu"),
    [
        ({"device": "cpu", "gpu_fraction": 0.5}, None, 0.0),
        ({"device": "auto"}, None, 0.0),
        ({"device": "cuda"}, 1, 1.0),
        ({"device": "cuda", "gpu_fraction": 0.25}, 4, 0.25),
        ({"device": "cuda", "gpu_fraction": 0.3}, 3, 0.3),
        ({"device": "cuda", "gpu_fraction": 0.25, "jobs": 2}, 2, 0.25),
    ],
)
def test_a_share_of_a_gpu_says_how_many_cells_share_one(given, workers, gpu):
    asked = Options(**given).asked()
    assert asked["gpu"] == gpu and asked["most"] == given.get("jobs")
    assert workers in (None, asked["workers"])


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_executor_whose_package_is_missing_says_what_to_install(tmp_path, monkeypatch, name, package):
    words = tiny_suite(tmp_path, "fedra")
    monkeypatch.setitem(sys.modules, package, None)
    done = fedbench(*words, "--executor", name, cwd=tmp_path)
    assert done.exit_code == 2 and f"pip install 'fedbench[{name}]'" in done.stderr, done.stderr
    assert fedbench("plugins", "show", name, cwd=tmp_path).exit_code == 0
    assert not (tmp_path / "results").exists()
