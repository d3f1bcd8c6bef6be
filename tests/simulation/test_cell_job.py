"""What a worker is sent is the same after its way as one JSON string."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedbench.simulation.cell_job import CellJob

PLAIN = CellJob(Path("/r/s/skew-fedra-0"), {"id": "0", "config": {"seed": 0}}, "cpu", ["/mine.py"])
SEEN = CellJob(Path("/r/s/x"), {}, "auto", [], 2, 30.0, True, 0.25)
HALVED = CellJob(Path("/r/s/x"), {}, "cpu", [], until=3)


@pytest.mark.parametrize("order", [PLAIN, SEEN, HALVED])
def test_an_order_comes_back_as_it_was(order):
    assert CellJob.from_json(order.to_json()) == order


def test_the_keys_are_those_that_executors_know():
    keys = {"folder", "manifest", "device", "plugins", "processes", "checkpoint_every", "fresh", "gpu_fraction"}
    assert json.loads(PLAIN.to_json()).keys() == keys | {"gpu", "until", "registered"}


def test_keys_that_an_executor_added_are_passed_over():
    assert CellJob.from_json(json.dumps({**json.loads(PLAIN.to_json()), "node": 7})) == PLAIN
