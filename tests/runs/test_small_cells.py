"""Small cells in turn: few processes, the same numbers, and a cell that ends badly after others is computed again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from command import TINY, fedbench, write_suite

from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results import content_hash
from fedbench.runs.options import Options
from fedbench.runs.plan import cells_of
from fedbench.runs.runner import load
from fedbench.runs.turns import SMALL, in_order, turns_of

SEEDS = range(2)
METHODS = "fedra, head_only"
# What a process does in its second cell, as long as there is no file `fine`; every cell notes its process.
TRACKER = """
import os, signal, sys, threading, time
from pathlib import Path
from fedbench import hookimpl

HERE, COUNT = Path(__file__).parent, [0]

@hookimpl
def fedbench_cell_started(manifest):
    COUNT[0] += 1
    with (HERE / "pids").open("a") as pids:
        pids.write(f"{os.getpid()} {manifest['id']}\\n")
    print("cell", COUNT[0])
    if COUNT[0] == 2 and not (HERE / "fine").exists():
        (HERE / "seen").touch()
        DO

def fails(*given, **named):
    raise RuntimeError("it broke")
"""
BADLY = {
    "os._exit(3)": "the worker process ended with exit code 3 before it was done",
    "os.kill(os.getpid(), signal.SIGKILL)": "the worker process was ended by SIGKILL",
    "sys.modules['fedbench.cell.trial'].Trial.run = fails": "RuntimeError: it broke",
    "os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)": "the process that watches over the cell was killed",
}


def tracked(folder: Path, do: str = "pass", *words: object, results: str = "r", jobs: int = 1, at: str = "== 2"):
    """A run of four small cells under a tracker that does so in the second cell of a process, or in others."""
    write_suite(folder, METHODS)
    (folder / "tracker.py").write_text(TRACKER.replace("== 2", at).replace("DO", do))
    chosen = [word for seed in SEEDS for word in ("--seed", seed)]
    words = (*chosen, "--plugin", TINY, "--plugin", "tracker.py", "--jobs", jobs, *words)
    return fedbench("run", "tiny.yaml", "--device", "cpu", "--results", results, *words, cwd=folder)


def processes(folder: Path) -> list[str]:
    """The process of each cell that was begun, since the last call."""
    noted = [line.split()[0] for line in (folder / "pids").read_text().splitlines()]
    (folder / "pids").unlink()
    return noted


def printed(folder: Path) -> list[str]:
    return sorted(file.read_text() for file in (folder / "r" / "tiny").glob("*/output.txt"))


def test_small_cells_are_computed_in_turn_to_the_same_bits(tmp_path, own_cache):
    done = tracked(tmp_path)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert len(set(processes(tmp_path))) == 1 and printed(tmp_path) == [f"cell {n}\n" for n in range(1, 5)]
    done = tracked(tmp_path, "pass", "--own-processes", results="own", jobs=2)
    assert done.exit_code == 0 and len(set(processes(tmp_path))) == 4
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "own")


@pytest.mark.parametrize("do", BADLY)
def test_a_cell_that_ends_badly_after_others_is_computed_again_by_itself(tmp_path, own_cache, do):
    done = tracked(tmp_path, do)
    told = " ".join(done.stdout.split())
    assert done.exit_code == 0 and "4/4" in told, done.stdout + done.stderr
    assert f"runs again, in a process of its own: {BADLY[do]}" in told
    assert {json.loads(file.read_text())["status"] for file in tmp_path.glob("r/tiny/*/manifest.json")} == {"finished"}
    pids = processes(tmp_path)
    assert len(pids) > 4 and not [pid for pid in set(pids) if psutil.pid_exists(int(pid))]


def test_one_that_fails_by_itself_too_has_failed(tmp_path, own_cache):
    done = tracked(tmp_path, "os._exit(3)", at=">= 1")
    assert done.exit_code == 1 and "4 cells failed" in done.stdout and "runs again" not in done.stdout


def test_a_process_that_is_left_otherwise_computes_no_other_cell(tmp_path, own_cache):
    assert tracked(tmp_path, "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()").exit_code == 0
    assert len(set(processes(tmp_path))) == 2


def test_what_a_cell_in_turn_has_started_ends_with_it(tmp_path, own_cache):
    starts = "import subprocess; (HERE / 'child').write_text(str(subprocess.Popen(['setsid', 'sleep', '600']).pid))"
    assert tracked(tmp_path, starts).exit_code == 0
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_run_that_is_ended_amid_a_turn_goes_on_to_the_same_bits(tmp_path, own_cache, hears_signals):
    done = tracked(tmp_path, f"os.kill({os.getpid()}, signal.SIGTERM); time.sleep(0.5)")
    assert done.exit_code == 143
    ended = [json.loads(file.read_text())["status"] for file in tmp_path.glob("r/tiny/*/manifest.json")]
    assert sorted(ended) in (["finished", "interrupted"], ["finished", "finished"])
    (tmp_path / "fine").touch()
    for results in ("r", "undisturbed"):
        assert tracked(tmp_path, results=results).exit_code == 0
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "undisturbed")


@pytest.mark.slow
def test_one_that_hangs_after_others_is_computed_again(tmp_path, own_cache):
    done = tracked(tmp_path, "time.sleep(600)", "--timeout", 3)
    assert done.exit_code == 0 and "in a process of its own: it was out of time" in " ".join(done.stdout.split())


@pytest.fixture
def named(tmp_path, own_cache):
    """The cells of a suite, what they cost, and their registry."""
    registry = Registry([str(TINY)])
    suite = load(write_suite(tmp_path, "fedra, {name: mine, extends: chained}"), registry)
    cells = cells_of(suite.points(seeds=[0, 1]), registry, Assets(registry))
    return cells, {cell.id: {"flops": 9, "images": 3, "tested": 5} for cell in cells}, registry


def test_which_cells_are_computed_in_turn(named):
    cells, totals, registry = named
    ours = [cell.id for cell in cells if cell.config["method"]["name"] == "fedra"]
    on_cpu = Options(device="cpu")
    found = turns_of(cells, totals, on_cpu, registry)
    assert list(found) == ours and len(set(found.values())) == 1  # and none with a method of somebody else's
    assert turns_of(cells, totals, Options(device="cuda"), registry) == {}
    assert turns_of(cells, totals, replace(on_cpu, own_processes=True), registry) == {}
    assert turns_of(cells, {ours[0]: totals[ours[0]]}, on_cpu, registry) == {}, "what one costs is not known"
    large = {**totals, ours[0]: {"flops": SMALL, "images": 1, "tested": 1}}
    assert turns_of(cells, large, on_cpu, registry) == {}, "one alone has nothing in common with others"
    changed = replace(cells[0], config={**cells[0].config, "backbone": {"name": "micro_vit"}})
    assert turns_of([changed, *cells[1:]], totals, on_cpu, registry).keys() <= set(ours[1:])


def test_cells_of_one_turn_come_one_after_the_other(named):
    cells, *_ = named
    first, second, third, fourth = cells
    assert in_order(cells, {first.id: "a", third.id: "a"}) == [first, third, second, fourth]
    assert in_order(cells, {}) == cells
