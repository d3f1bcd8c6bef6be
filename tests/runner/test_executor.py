"""What the runner asks of an executor, and what it makes of one that does less or more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from command import TINY, fedbench, write_suite

from fedbench.runner.cells import Options

GOOD = "fedra, allsmall, head_only"


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
    [("running", "Ended before all was computed"), ("interrupted", "Broken off from outside")],
)
def test_cells_that_an_executor_leaves_undone_are_counted_as_left(tmp_path, leaves, told):
    words = (*tiny_suite(tmp_path, "fedra, allsmall"), "--plugin", "lazy.py", "--max-failures", 5)
    (tmp_path / "lazy.py").write_text(LAZY)
    words = (*words, "--executor", f"{{name: lazy, leaves: {leaves}}}")
    done = fedbench(*words, cwd=tmp_path)
    assert done.exit_code == 1 and f"{told}; 2 cells left, which the same command runs." in done.stdout


def test_an_executor_that_asks_for_no_cell_is_named(tmp_path):
    words = tiny_suite(tmp_path, "fedra, allsmall")
    (tmp_path / "lazy.py").write_text(LAZY)
    done = fedbench(*words, "--plugin", "lazy.py", "--executor", "lazy", cwd=tmp_path)
    assert done.exit_code == 2
    assert "--executor lazy: it returned without asking for a cell, though 2 of them" in done.stderr


ASKED = """
import json
from fedbench import hookimpl

WORDS = ("processes", "checkpoint_every", "fresh")

def asking(workers, timeout, memory_limit):
    def execute(jobs, on_event):
        print("ASKED", workers, timeout, memory_limit, [[json.loads(job)[word] for word in WORDS] for job in jobs])
    return execute

@hookimpl
def fedbench_register_executors(register):
    register("asking", asking)
"""


@pytest.mark.parametrize(
    ("methods", "suites", "given", "told"),
    [
        (GOOD, "\ntimeout: 600", ("--checkpoint", 5, "--force"), "3 600 None " + str([[2, 5.0, True]] * 3)),
        ("fedra", "\ntimeout: 600", ("--timeout", 5, "--memory-limit", "1.5GB"), "5.0 1500000000"),
    ],
)
def test_limits_cores_and_checkpoints_are_asked_for_as_the_command_line_and_then_the_suite_say(
    tmp_path, methods, suites, given, told
):
    """Cores without a cell of their own are shared out."""
    words = tiny_suite(tmp_path, methods)
    write_suite(tmp_path, methods, {"suite: tiny": f"suite: tiny{suites}"})
    (tmp_path / "asking.py").write_text(ASKED)
    words = (*words, *given, "--plugin", "asking.py", "--executor", "asking", "--jobs", 8)
    done = fedbench(*words, cwd=tmp_path)
    assert "ASKED" in done.stdout and told in done.stdout, done.output


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


def test_cells_that_are_computed_in_the_users_own_process(tmp_path, monkeypatch):
    """They are not shared out: torch may have used threads there already, and a copy of the process would wait for them
    for ever. An end that is told twice counts once."""
    words = tiny_suite(tmp_path, "fedra, {name: raises, extends: odd, how: raise}")
    twice = IN_PROCESS.replace("**told})", "**told}); on_event({'event': 'ended', 'folder': folder, **told})")
    (tmp_path / "twice.py").write_text(twice)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("the process was copied"))
    words = (*words, "--plugin", "twice.py", "--executor", "in_process", "--jobs", 8)
    done = fedbench(*words, "--max-failures", 2, cwd=tmp_path)
    assert done.exit_code == 1 and "cells failed" not in done.stdout and "1 cell failed" in done.stdout, done.output
    assert "[2/2]" in done.stdout and "[3/2]" not in done.stdout


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
