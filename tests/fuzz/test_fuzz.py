"""A sample of every kind of hostile input on every run; 20,000 and more, in processes of their own, with -m slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from fuzz.campaign import KINDS, campaign
from fuzz.mutants import changed, damaged, misspelt, rewritten
from fuzz.watch import Arena

TESTS = Path(__file__).parents[1]
SAMPLE = {"suites": 60, "results": 12, "archives": 20, "states": 30, "checkpoints": 15, "plugins": 3}
MANY = {"suites": 7000, "results": 4000, "archives": 4000, "states": 4000, "checkpoints": 2000, "plugins": 1200}
PIECES = 8  # of each kind, so that a process that is ended takes few inputs with it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")  # numpy's of infinities, zipfile's of names used twice
def test_hostile_input_is_answered_or_refused(kind, tmp_path):
    report = campaign(kind, range(SAMPLE[kind]), tmp_path)
    assert report["faults"] == {}
    assert report["refused"] > 0 and report["answered"] > 0, "inputs that are all alike find nothing"


@pytest.mark.slow
def test_twenty_thousand_hostile_inputs_are_answered_or_refused(capfd):
    began = time.perf_counter()
    pieces = [(kind, i, MANY[kind] // PIECES) for i in range(PIECES) for kind in KINDS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(lambda piece: _in_a_process(*piece), pieces))
    faults = [report for report in reports if report.get("faults") or "died" in report]
    lines = []
    for kind in KINDS:
        mine = [report for report in reports if report["kind"] == kind and "died" not in report]
        sums = {
            what: sum(report.get(what, 0) for report in mine) for what in ("inputs", "refused", "answered", "seconds")
        }
        lines.append(f"{kind}: {sums}, slowest {max(report['slowest'] for report in mine)}")
    with capfd.disabled():
        print("", *lines, *faults, f"in all {time.perf_counter() - began:.0f} seconds", sep="\n")
    assert not faults
    assert sum(MANY.values()) >= 20_000


def _in_a_process(kind: str, piece: int, count: int) -> dict:
    words = [sys.executable, "-W", "ignore", "-m", "fuzz.campaign", kind, str(piece * count), str(count)]
    paths = [str(TESTS), *filter(None, sys.path)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=env, cwd=TESTS, capture_output=True, text=True)
    if done.returncode:
        return {"kind": kind, "died": done.returncode, "first": piece * count, "told": done.stderr[-2000:]}
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("attack", "told"),
    [
        (lambda inside, chance: (inside / "x").write_text("x"), "answered"),
        (lambda inside, chance: 1 / 0, "ZeroDivisionError"),
        (lambda inside, chance: sys.exit(1), "SystemExit"),
        (lambda inside, chance: (inside.parent / "x" / "canary").write_text("x"), "something outside"),
        (lambda inside, chance: (inside.parent / "new").mkdir(), "something outside"),
        (lambda inside, chance: (inside.parents[1] / "x" / "new").touch(), "something outside"),
        (lambda inside, chance: time.sleep(60), "too slow"),
        (lambda inside, chance: [None for i in iter(int, 1) if i], "too slow"),
    ],
)
def test_the_watch_sees_every_kind_of_fault(attack, told, tmp_path, monkeypatch):
    monkeypatch.setattr("fuzz.watch.SECONDS", 0.05)
    assert Arena(tmp_path).run(attack, Random(0)).startswith(told)


def test_damage_is_a_function_of_its_seed():
    value, text = {"a": [1, {"b": None}], "c": "x"}, "suite: x\nseeds: [1, 2]\n"
    for seed in range(50):
        once, again = (
            (
                damaged(b"0123456789", chance),
                misspelt(text, chance),
                rewritten(json.dumps(value).encode(), chance),
                repr(changed(value, chance)),
            )
            for chance in (Random(seed), Random(seed))
        )
        assert once == again
    assert value == {"a": [1, {"b": None}], "c": "x"}
