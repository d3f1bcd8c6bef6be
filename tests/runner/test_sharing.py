"""Several `fedbench run` in one folder, as real processes: every cell once, and nothing lost when one of them dies."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from command import MAIN, TINY, environment, fedbench, run, write_suite, written

from fedbench.results import content_hash, read_index, read_manifest, write_manifest
from fedbench.results.columns import TAKEN
from fedbench.results.identity import identity
from fedbench.results.lock import cell_lock
from fedbench.results.store import Store, folder_of
from fedbench.runner.cells import Cell, Options
from fedbench.runner.progress import EndedCells
from fedbench.runner.runner import JobQueue
from fedbench.suite import Point

# Every cell leaves a line where it starts; the method `waits` goes on as soon as a file is there.
WITNESS = """
import os, time
from dataclasses import replace
from fedbench import hookimpl

def waits(setup, until: str):
    from fedbench.families.layerwise import layerwise
    method = layerwise(setup)
    def round(state, t, cohort, generator):
        while not os.path.exists(until):
            time.sleep(0.02)
        return method.round(state, t, cohort, generator)
    return replace(method, round=round)

@hookimpl
def fedbench_register_methods(register):
    register("waits", waits)

@hookimpl
def fedbench_cell_started(manifest):
    with open("started.txt", "a") as file:
        file.write(manifest["id"] + "\\n")
"""
QUICK = {"rounds: 2": "rounds: 1", "suite: tiny": "suite: tiny\nseeds: [0, 1]"}

WHOLE = {
    **{part: {"name": part} for part in ("backbone", "adapter", "data", "method")},
    "train": {"rounds": 1},
    "evaluation": {"every": 1, "metrics": [{"name": "accuracy"}]},
}
CONFIGS = {identity(config, {}, {}): config for config in ({**WHOLE, "seed": seed} for seed in (1, 2))}


def ended(folder: Path, id: str, status: str = "finished", **changes) -> dict:
    """A cell as the run that computed it leaves it; returns its manifest as it is read."""
    manifest = {
        "id": id,
        "config": CONFIGS[id],
        "fingerprints": {},
        "versions": {},
        "reason": None,
        "status": status,
        **changes,
    }
    place = folder_of(folder, id)
    write_manifest(place, manifest)
    return read_manifest(place)


ONE, TWO = CONFIGS


@pytest.fixture
def runs(tmp_path):
    """A function that makes the queue of one run, and the events and ends that it reports."""

    def made(cells: dict[str, dict | None]) -> tuple[JobQueue, list[dict], EndedCells]:
        events: list[dict] = []
        ends = EndedCells(events.append, None)
        todo = [Cell(id, {}, {}, {}, [Point("s", "m", "", 0, {})]) for id in cells]
        return JobQueue(todo, cells, tmp_path, ends.note), events, ends

    return made


def computed(queue: JobQueue) -> list[str]:
    """The cells that a queue hands out."""
    return [cell.id for cell in queue.cells()]


def other_run(folder: Path, id: str):
    """Within, another run computes the cell."""
    return cell_lock(folder_of(folder, id))


def test_a_cell_that_another_run_computes_is_passed_over_and_waited_for(tmp_path, runs, monkeypatch):
    queue, events, ends = runs({ONE: None, TWO: None})
    with other_run(tmp_path, ONE):
        assert queue.wait() and computed(queue) == [TWO]

        def sleep(seconds: float) -> None:
            ended(tmp_path, ONE, "failed", reason="it broke")

        monkeypatch.setattr("fedbench.runner.runner.time", SimpleNamespace(sleep=sleep))
        assert queue.wait() is False
    waiting, elsewhere = events
    assert waiting == {"event": "waiting", "cells": 1}
    assert (elsewhere["event"], elsewhere["status"], elsewhere["reason"]) == ("elsewhere", "failed", "it broke")
    assert ends.elsewhere == {ONE}


def test_a_cell_that_another_run_leaves_undone_is_computed(tmp_path, runs, monkeypatch):
    queue, events, _ = runs({ONE: None})
    other = other_run(tmp_path, ONE)
    other.__enter__()
    assert computed(queue) == []
    ended(tmp_path, ONE, "running")

    def sleep(seconds: float) -> None:
        other.__exit__(None, None, None)

    monkeypatch.setattr("fedbench.runner.runner.time", SimpleNamespace(sleep=sleep))
    assert queue.wait() and computed(queue) == [ONE]


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_cell_to_be_computed_again_is_so_by_one_run(tmp_path, runs, status):
    """With --force or --retry-failed: what was there before does not count, what another run made meanwhile does."""
    before = {id: ended(tmp_path, id, status, seconds=1.0) for id in (ONE, TWO)}
    queue, events, _ = runs(before)
    ended(tmp_path, TWO, status, seconds=2.0)
    assert computed(queue) == [ONE]
    assert [Path(event["folder"]).name for event in events] == [TWO]


def test_a_cell_that_was_taken_is_left_again(tmp_path, runs):
    queue, _, _ = runs({ONE: None})
    assert computed(queue) == [ONE]
    assert queue.ended(f"{tmp_path}/cells/{ONE}", TAKEN) and list(queue.left) == [ONE]
    assert computed(queue) == [ONE] and queue.ended(f"{tmp_path}/cells/{ONE}", "finished") and not queue.left
    assert not queue.ended(f"{tmp_path}/cells/{ONE}", "finished"), "it was told before"


def test_shards_are_of_one_size_and_leave_no_cell_out():
    cells = [Cell(f"{i * 37 % 101:012x}", {}, {}, {}, []) for i in range(10)]
    by_id = attrgetter("id")
    shards = [Options(shard=(part, 3)).of_shard(cells, by_id) for part in (1, 2, 3)]
    assert sorted(map(len, shards)) == [3, 3, 4]
    assert sorted(cell.id for shard in shards for cell in shard) == sorted(cell.id for cell in cells)
    assert Options().of_shard(cells, by_id) == cells


def prepare(folder: Path, methods: str, changes: dict[str, str] | None = None) -> None:
    write_suite(folder, methods, changes)
    (folder / "witness.py").write_text(WITNESS)


def started(folder: Path) -> Counter:
    """How often each cell was started."""
    file = folder / "started.txt"
    return Counter(file.read_text().split() if file.exists() else ())


def beside(folder: Path, *words: str, **variables: str) -> subprocess.Popen:
    """`fedbench run` in a process of its own, not waited for."""
    words = [*MAIN, "run", "tiny.yaml", "--plugin", str(TINY), "--plugin", "witness.py", "--results", "r", *words]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(words, cwd=folder, env={**environment(), **variables}, **pipes)


def here(folder: Path, *words: str):
    """`fedbench run` in this process. No run of these tests is refused."""
    done = run("--plugin", "witness.py", *words, cwd=folder)
    assert done.exit_code in (0, 1) or done.exit_code > 128, done.output
    return done


def wait_until(true, process: subprocess.Popen) -> None:
    until = time.monotonic() + 90
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the run did not get there"
        time.sleep(0.02)


def manifests(folder: Path) -> list[dict]:
    return written(folder / "r")


@pytest.mark.slow
def test_three_runs_started_together_compute_every_cell_once(tmp_path):
    """One of them knows some cells by another name."""
    prepare(tmp_path, "fedra, {name: same, extends: fedra, missing_layers: keep}, allsmall", QUICK)
    assert (
        here(tmp_path, "--results", "alone", "--quiet").exit_code == 0
    )  # first, so that this process has torch by now
    (tmp_path / "started.txt").unlink()
    others = [beside(tmp_path, "--jobs", "1", "--json", *words) for words in ((), ("--method", "same"))]
    wait_until(lambda: (tmp_path / "r/tiny/index.json").is_file(), others[0])
    mine = here(tmp_path, "--jobs", "1", "--json")
    told = [json.loads(mine.stdout)] + [json.loads(other.communicate(timeout=120)[0]) for other in others]
    assert sorted(started(tmp_path).values()) == [1] * 4
    assert sum(one["ran"] for one in told) == 4
    assert [one["counts"] for one in told] == [{"finished": 4}, {"finished": 4}, {"finished": 2}]
    # A run that begins late finds finished cells, which it neither ran nor saw others compute.
    assert all(one["ran"] + one["elsewhere"] <= one["counts"]["finished"] for one in told)
    assert not [path for path in (tmp_path / "r").rglob("*") if path.suffix == ".tmp"]
    index = read_index(tmp_path / "r/tiny")
    cells = {entry.cell for entry in index.entries}
    assert cells == set(Store(tmp_path / "r/tiny", index.tables).ids) and len(cells) == 4
    left = [path for path in (tmp_path / "r/tiny/cells").iterdir() if path.is_dir()]
    assert {path.name for path in left} == cells and not any((path / "manifest.json").exists() for path in left)
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "alone")


@pytest.mark.slow
def test_the_cells_of_a_run_that_is_killed_are_taken_over(tmp_path):
    flag = tmp_path / "go"
    prepare(tmp_path, f"{{name: waits, until: {flag}}}, fedra")
    killed = beside(tmp_path, "--jobs", "1")
    try:
        wait_until(lambda: started(tmp_path), killed)
        workers = psutil.Process(killed.pid).children(recursive=True)
    finally:
        killed.kill()
        killed.wait()  # the worker that is left has its pipes
    flag.touch()
    done = here(tmp_path, "--jobs", "1", "--json")
    assert json.loads(done.stdout)["counts"] == {"finished": 2}
    assert sorted(started(tmp_path).values()) == [1, 2]
    psutil.wait_procs(workers, timeout=10)


@pytest.mark.slow
def test_a_run_waits_for_the_cells_of_a_run_that_is_frozen(tmp_path):
    """No time makes a lock stale: its holder may be suspended, and goes on one day."""
    flag = tmp_path / "go"
    prepare(tmp_path, f"{{name: waits, until: {flag}}}")
    frozen = beside(tmp_path, "--jobs", "1", "--json")
    waiting = None
    try:
        wait_until(lambda: started(tmp_path), frozen)
        processes = [psutil.Process(frozen.pid), *psutil.Process(frozen.pid).children(recursive=True)]
        for one in processes:
            one.suspend()
        waiting = beside(tmp_path, "--jobs", "1")
        assert "Waiting for 1 cell that another run computes" in "".join(next(waiting.stdout) for _ in range(2))
        flag.touch()
        for one in processes:
            one.resume()
        out, err = frozen.communicate(timeout=60)
        assert json.loads(out)["ran"] == 1 and frozen.returncode == 0, out + err
        out, _ = waiting.communicate(timeout=60)
        assert "by another run" in out and waiting.returncode == 0
    finally:
        for process in filter(None, (frozen, waiting)):
            process.kill()
    assert list(started(tmp_path).values()) == [1]


@pytest.mark.parametrize("told", ["0/2", "3/2", "a/b"])
def test_a_shard_that_is_none_is_refused(tmp_path, told):
    write_suite(tmp_path)
    done = run("--shard", told, cwd=tmp_path)
    assert done.exit_code == 2 and f"--shard: expected I/N with I from 1 to N, such as 1/4, got '{told}'" in done.stderr


@pytest.mark.slow
def test_one_content_hash_whoever_computes_it_with_both_engines(tmp_path):
    """One worker, eight (a cell by several processes), two runs at once, and two shards that are merged."""
    scenarios = "  small: {engine: sequential}\n  joint: {engine: cohort}"
    prepare(tmp_path, "fedra", {"  small: {}": scenarios})
    other = beside(tmp_path, "--jobs", "1", "--quiet")  # into r, beside the last of these
    for words in (("--jobs", "1", "--results", "one"), ("--jobs", "8", "--results", "eight")):
        assert here(tmp_path, "--quiet", *words).exit_code == 0
    for part in (1, 2):
        done = here(tmp_path, "--shard", f"{part}/2", "--results", f"shard{part}", "--json")
        assert json.loads(done.stdout)["counts"] == {"finished": 1}
    assert fedbench("merge", "shard1", "shard2", "--into", "merged", cwd=tmp_path).exit_code == 0
    assert here(tmp_path, "--jobs", "1", "--quiet").exit_code == 0
    assert other.wait(timeout=60) == 0
    other.communicate()
    assert {content_hash(tmp_path / name) for name in ("one", "eight", "merged", "r")} == {
        content_hash(tmp_path / "one")
    }
    assert os.listdir(tmp_path / "merged") == ["tiny"]
