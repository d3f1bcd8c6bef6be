"""Several `fedbench run` in one folder, as real processes: every cell once, and nothing lost when one of them dies."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from command import MAIN, TINY, environment, fedbench, run, write_suite

from fedbench.errors import UserError
from fedbench.results import content_hash, read_manifest, write_manifest
from fedbench.results.claims import Claims
from fedbench.results.identity import identity
from fedbench.runs.backlog import Backlog
from fedbench.runs.options import Options
from fedbench.runs.outcome import Ends
from fedbench.runs.plan import Cell
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

CONFIGS = {identity(config, {}, {}): config for config in ({"number": 1}, {"number": 2})}


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
    write_manifest(folder / f"slug-{id}", manifest)
    return read_manifest(folder / f"slug-{id}")


class Runs:
    """Two runs on one folder: the claims of one, and the backlog of the other."""

    def __init__(self, folder: Path, cells: dict[str, dict | None]) -> None:
        point = Point("s", "m", "", 0, {})
        self.events: list[dict] = []
        self.ends = Ends(self.events.append, None)
        self.other, claims = Claims(folder), Claims(folder)
        todo = [Cell(id, {}, {}, {}, [point]) for id in cells]
        self.backlog = Backlog(todo, cells, folder, claims, self.ends.note)

    def computed(self) -> list[str]:
        """The cells that the backlog hands out."""
        return [cell.id for cell, _ in self.backlog.claimed()]


ONE, TWO = CONFIGS


def test_a_cell_that_another_run_has_is_passed_over_and_waited_for(tmp_path, monkeypatch):
    runs = Runs(tmp_path, {ONE: None, TWO: None})
    runs.other.take(ONE)
    assert runs.backlog.wait() and runs.computed() == [TWO]

    def sleep(seconds: float) -> None:
        ended(tmp_path, ONE, "failed", reason="it broke")
        runs.other.release(ONE)

    monkeypatch.setattr("fedbench.runs.backlog.time", SimpleNamespace(sleep=sleep))
    assert runs.backlog.wait() is False
    waiting, elsewhere = runs.events
    assert (waiting["event"], waiting["cells"]) == ("waiting", 1)
    assert f"process {os.getpid()} on " in waiting["holders"][0]
    assert (elsewhere["event"], elsewhere["status"], elsewhere["reason"]) == ("elsewhere", "failed", "it broke")
    assert runs.ends.elsewhere == {f"slug-{ONE}"}


def test_a_cell_that_another_run_gives_back_is_taken_up(tmp_path, monkeypatch):
    runs = Runs(tmp_path, {ONE: None})
    runs.other.take(ONE)
    assert runs.computed() == []
    ended(tmp_path, ONE, "running")
    monkeypatch.setattr("fedbench.runs.backlog.time", SimpleNamespace(sleep=lambda seconds: runs.other.release(ONE)))
    assert runs.backlog.wait() and runs.computed() == [ONE]


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_cell_to_be_computed_again_is_so_by_one_run(tmp_path, status):
    """With --force or --retry-failed: what was there before does not count, what another run made meanwhile does."""
    before = {id: ended(tmp_path, id, status, seconds=1.0) for id in (ONE, TWO)}
    runs = Runs(tmp_path, before)
    ended(tmp_path, TWO, status, seconds=2.0)
    assert runs.computed() == [ONE]
    assert [Path(event["folder"]).name for event in runs.events] == [f"slug-{TWO}"]


def test_a_cell_whose_claim_cannot_be_written_fails_alone(tmp_path, monkeypatch):
    runs = Runs(tmp_path, {ONE: None, TWO: None})
    take = runs.backlog.claims.take

    def full_at_first(id: str):
        if id == ONE:
            raise UserError("no space")
        return take(id)

    monkeypatch.setattr(runs.backlog.claims, "take", full_at_first)
    assert runs.computed() == [TWO]
    (event,) = runs.events
    assert (event["event"], event["status"], event["reason"]) == ("unclaimed", "failed", "no space")
    assert Path(event["folder"]).name.endswith(ONE) and runs.backlog.wait() is False


def test_a_cell_that_is_taken_over_is_left_again(tmp_path):
    runs = Runs(tmp_path, {ONE: None})
    assert runs.computed() == [ONE]
    (tmp_path / f".{ONE}.claim").write_text('{"token": "new"}')
    assert runs.backlog.ended(f"{tmp_path}/slug-{ONE}") is False
    assert list(runs.backlog.left) == [ONE]


def test_shards_are_of_one_size_and_leave_no_cell_out():
    cells = [Cell(f"{i * 37 % 101:012x}", {}, {}, {}, []) for i in range(10)]
    shards = [Options(shard=(part, 3)).of_shard(cells) for part in (1, 2, 3)]
    assert sorted(map(len, shards)) == [3, 3, 4]
    assert sorted(cell.id for shard in shards for cell in shard) == sorted(cell.id for cell in cells)
    assert Options().of_shard(cells) == cells


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
    return run("--plugin", "witness.py", *words, cwd=folder)


def wait_until(true, process: subprocess.Popen) -> None:
    until = time.monotonic() + 90
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the run did not get there"
        time.sleep(0.02)


def manifests(folder: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in (folder / "r/tiny").glob("*/manifest.json")]


def test_three_runs_started_together_compute_every_cell_once(tmp_path):
    """One of them knows some cells by another name, and would call their folders after that."""
    prepare(tmp_path, "fedra, {name: same, extends: fedra, missing_layers: keep}, allsmall", QUICK)
    others = [beside(tmp_path, "--jobs", "1", "--json", *words) for words in ((), ("--method", "same"))]
    wait_until(lambda: (tmp_path / "r/tiny/index.json").is_file(), others[0])
    mine = here(tmp_path, "--jobs", "1", "--json")
    told = [json.loads(mine.stdout)] + [json.loads(other.communicate(timeout=120)[0]) for other in others]
    assert sorted(started(tmp_path).values()) == [1] * 4
    assert sum(one["ran"] for one in told) == 4
    assert [one["counts"] for one in told] == [{"finished": 4}, {"finished": 4}, {"finished": 2}]
    assert [one["ran"] + one["elsewhere"] for one in told] == [4, 4, 2]
    assert not [path for path in (tmp_path / "r").rglob("*") if path.suffix in (".tmp", ".claim")]
    cells = {entry["cell"] for entry in json.loads((tmp_path / "r/tiny/index.json").read_text())["entries"]}
    assert cells == {path.name for path in (tmp_path / "r/tiny").iterdir() if path.is_dir()} and len(cells) == 4
    assert here(tmp_path, "--results", "alone", "--quiet").exit_code == 0
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "alone")


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
    done = here(tmp_path, "--jobs", "1", "--method", "fedra", "--json")
    assert json.loads(done.stdout)["counts"] == {"finished": 1}, "a worker that is left has the other cell"
    flag.touch()
    began = time.monotonic()
    done = here(tmp_path, "--jobs", "1", "--json")
    assert json.loads(done.stdout)["counts"] == {"finished": 2}
    assert time.monotonic() - began < 30, "both processes were known to be gone"
    assert sorted(started(tmp_path).values()) == [1, 2]
    psutil.wait_procs(workers, timeout=10)


def test_a_run_that_was_frozen_leaves_its_cell_to_who_took_it_over(tmp_path, monkeypatch):
    flag = tmp_path / "go"
    prepare(tmp_path, f"{{name: waits, until: {flag}}}")
    frozen = beside(tmp_path, "--jobs", "1", FEDBENCH_STALE_AFTER="2")
    try:
        wait_until(lambda: started(tmp_path), frozen)
        processes = [psutil.Process(frozen.pid), *psutil.Process(frozen.pid).children(recursive=True)]
        for one in processes:
            one.suspend()
        flag.touch()
        monkeypatch.setenv("FEDBENCH_STALE_AFTER", "2")
        done = here(tmp_path)
        assert done.exit_code == 0 and f"Waiting for 1 cell that another run computes: process {frozen.pid} on" in (
            done.stdout
        )
        (ours,) = manifests(tmp_path)
        for one in processes:
            one.resume()
        out, err = frozen.communicate(timeout=60)
    finally:
        frozen.kill()
    assert frozen.returncode == 0, out + err
    assert "taken" in out and "by another run" in out and "Traceback" not in out + err
    assert manifests(tmp_path) == [ours] and ours["status"] == "finished"
    assert list(started(tmp_path).values()) == [2]


@pytest.mark.parametrize("told", ["2", "0/2", "3/2", "1/0", "a/b", "1/2/3"])
def test_a_shard_that_is_none_is_refused(tmp_path, told):
    write_suite(tmp_path)
    done = run("--shard", told, cwd=tmp_path)
    assert done.exit_code == 2 and f"--shard: expected I/N with I from 1 to N, such as 1/4, got '{told}'" in done.stderr


def test_one_content_hash_whoever_computes_it_with_both_engines(tmp_path):
    """One worker, eight (a cell by several processes), two runs at once, and two shards that are merged."""
    scenarios = "  small: {engine: sequential}\n  joint: {engine: cohort}"
    prepare(tmp_path, "fedra, allsmall", {"  small: {}": scenarios})
    other = beside(tmp_path, "--jobs", "1", "--quiet")  # into r, beside the last of these
    for words in (("--jobs", "1", "--results", "one"), ("--jobs", "8", "--results", "eight")):
        assert here(tmp_path, "--quiet", *words).exit_code == 0
    for part in (1, 2):
        done = here(tmp_path, "--shard", f"{part}/2", "--results", f"shard{part}", "--json")
        assert json.loads(done.stdout)["counts"] == {"finished": 2}
    assert fedbench("merge", "shard1", "shard2", "--into", "merged", cwd=tmp_path).exit_code == 0
    assert here(tmp_path, "--jobs", "1", "--quiet").exit_code == 0
    assert other.wait(timeout=60) == 0
    other.communicate()
    assert {content_hash(tmp_path / name) for name in ("one", "eight", "merged", "r")} == {
        content_hash(tmp_path / "one")
    }
    assert os.listdir(tmp_path / "merged") == ["tiny"]
