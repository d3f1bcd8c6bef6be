"""What the runner asks of an executor, and what it makes of one that does less or more."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from command import TINY, fedbench, write_suite

from fedbench.results import content_hash
from fedbench.runner.cells import Options

GOOD = "fedra, allsmall, head_only"
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


def test_an_end_that_is_told_twice_counts_once(tmp_path):
    words = tiny_suite(tmp_path, "fedra, {name: raises, extends: odd, how: raise}")
    twice = IN_PROCESS.replace("**told})", "**told}); on_event({'event': 'ended', 'folder': folder, **told})")
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
from fedbench import hookimpl
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob

def in_process(workers, timeout):
    def execute(jobs, on_event):
        for order in map(CellJob.from_json, jobs):
            folder = str(order.folder)
            on_event({"event": "started", "folder": folder})
            end = worker.run(order)
            told = {key: end.get(key) for key in ("status", "reason", "seconds")}
            on_event({"event": "ended", "folder": folder, **told})
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
    assert done.exit_code == 2 and f"pip install 'fedbench-heft[{name}]'" in done.stderr, done.stderr
    assert fedbench("plugins", "show", name, cwd=tmp_path).exit_code == 0
    assert not (tmp_path / "results").exists()
