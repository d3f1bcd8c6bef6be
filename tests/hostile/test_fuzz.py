"""A sample of every kind of damaged input on every run; 12,000 with `pytest -m slow tests/hostile`."""

from __future__ import annotations

import json
import sys
import time
from random import Random

import pytest

from hostile.campaign import KINDS, campaign
from hostile.mutants import changed, damaged, misspelt, rewritten
from hostile.watch import Arena

SAMPLE = {"suites": 60, "results": 12, "archives": 20, "states": 30}


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [*((kind, range(SAMPLE[kind])) for kind in KINDS)]
    + [pytest.param(kind, range(100, 3100), marks=pytest.mark.slow) for kind in KINDS],
)
@pytest.mark.filterwarnings("ignore")  # numpy's of infinities, zipfile's of names used twice
def test_hostile_input_is_answered_or_refused(kind, numbers, tmp_path):
    counts, faults = campaign(kind, numbers, tmp_path)
    assert faults == {}
    assert counts["refused"] > 0 and counts["answered"] > 0, "inputs that are all alike find nothing"


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
    monkeypatch.setattr("hostile.watch.SECONDS", 0.05)
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
