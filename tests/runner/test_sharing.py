"""Several `fedbench run`, as real processes: one at a time in a folder, shards, and nothing lost when one dies."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter
from operator import attrgetter
from pathlib import Path

import psutil
import pytest
from command import MAIN, TINY, environment, fedbench, run, write_suite, written

from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results import content_hash
from fedbench.results.lock import cell_lock
from fedbench.runner.cells import Cell, Options, cells_of
from fedbench.runner.runner import load

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


@pytest.fixture
def at_work(tmp_path):
    """A run whose only cell at work waits for the file `go`, and that file."""
    flag = tmp_path / "go"
    prepare(tmp_path, f"{{name: waits, until: {flag}}}, fedra")
    process = beside(tmp_path, "--jobs", "1")
    try:
        wait_until(lambda: started(tmp_path), process)
        yield process, flag
    finally:
        flag.touch()
        process.kill()
        process.communicate()


def test_a_second_run_on_a_suites_folder_ends_at_once_and_names_the_first(tmp_path, at_work):
    first, flag = at_work
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    for words in ((), ("--force",), ("--method", "fedra")):
        done = run("--plugin", "witness.py", *words, cwd=tmp_path)
        assert done.exit_code == 2
        (line,) = [line for line in done.stderr.splitlines() if "at work" in line]
        assert f"r/tiny: `fedbench run` (process {first.pid} on {platform.node()}) has been at work there since" in line
        assert "`--shard I/N`" in line and "`fedbench merge`" in line
    for path, content in before.items():
        assert path.read_bytes() == content, path
    for words in (("pack", "r"), ("merge", "r", "--into", "r")):
        done = fedbench(*words, cwd=tmp_path)
        assert done.exit_code == 2 and f"process {first.pid} on" in done.stderr
    assert fedbench("compare", "r", cwd=tmp_path).exit_code == 0
    flag.touch()
    out, err = first.communicate(timeout=90)
    assert first.returncode == 0 and sorted(started(tmp_path).values()) == [1, 1], out + err
    assert json.loads(here(tmp_path, "--json").stdout)["ran"] == 0


def test_the_cells_of_a_run_that_is_killed_are_resumed(tmp_path, at_work):
    first, flag = at_work
    workers = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()  # the worker that is left has its pipes
    flag.touch()
    done = here(tmp_path, "--jobs", "1", "--json")
    assert json.loads(done.stdout)["counts"] == {"finished": 2}
    assert sorted(started(tmp_path).values()) == [1, 2]
    psutil.wait_procs(workers, timeout=10)


@pytest.mark.slow
def test_a_cell_at_which_a_process_of_an_earlier_run_is_still_at_work_is_left_to_the_next_run(tmp_path):
    """As it may be on another machine of a cluster, where nobody ends what a killed run has started."""
    prepare(tmp_path, "fedra, allsmall", {"rounds: 2": "rounds: 1"})
    done = here(tmp_path, "--method", "allsmall", "--json")
    registry = Registry([str(TINY)])
    cells = cells_of(load(tmp_path / "tiny.yaml", registry).points(), registry, CachedFacts(registry))
    (other,) = [cell for cell in cells if cell.points[0].method == "fedra"]
    with cell_lock(other.folder_in(tmp_path / "r/tiny")):
        done = here(tmp_path)
        assert done.exit_code == 1 and "still at work on it; the next run resumes it" in done.stdout
        assert "1 cell left" in done.stdout
    assert json.loads(here(tmp_path, "--json").stdout)["counts"] == {"finished": 2}


@pytest.mark.parametrize("told", ["0/2", "3/2", "a/b"])
def test_a_shard_that_is_none_is_refused(tmp_path, told):
    write_suite(tmp_path)
    done = run("--shard", told, cwd=tmp_path)
    assert done.exit_code == 2 and f"--shard: expected I/N with I from 1 to N, such as 1/4, got '{told}'" in done.stderr


@pytest.mark.slow
def test_one_content_hash_whoever_computes_it_with_both_engines(tmp_path):
    """One worker, eight (a cell by several processes), and two shards that are merged."""
    scenarios = "  small: {engine: sequential}\n  joint: {engine: cohort}"
    prepare(tmp_path, "fedra", {"  small: {}": scenarios})
    for words in (("--jobs", "1", "--results", "one"), ("--jobs", "8", "--results", "eight")):
        assert here(tmp_path, "--quiet", *words).exit_code == 0
    for part in (1, 2):
        done = here(tmp_path, "--shard", f"{part}/2", "--results", f"shard{part}", "--json")
        assert json.loads(done.stdout)["counts"] == {"finished": 1}
    assert fedbench("merge", "shard1", "shard2", "--into", "merged", cwd=tmp_path).exit_code == 0
    assert len({content_hash(tmp_path / name) for name in ("one", "eight", "merged")}) == 1
    assert os.listdir(tmp_path / "merged") == ["tiny"]
