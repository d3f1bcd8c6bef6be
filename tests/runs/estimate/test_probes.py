"""When cells are probed, how often, and what is kept of it; an executor that only answers stands in for real ones."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from factories import config

from fedbench.runs.estimate.probes import Place, Probes
from fedbench.runs.estimate.rates import Rates, kind_of
from fedbench.runs.plan import Cell

TWO = Place({"device": "cpu", "cpu": "any"}, workers=2, cells=2)
RATES = asdict(Rates(1.0, 0.0, 1e-9, 0.0, 1e-3))


class Answering:
    """In the place of the registry: jobs it was given, and an answer to each."""

    files: dict = {}

    def __init__(self, answers) -> None:
        self.answers, self.jobs = iter(answers), []

    def make(self, kind, ref, workers, timeout):
        def execute(jobs, on_event):
            for job in map(json.loads, jobs):
                self.jobs.append(job)
                on_event({"event": "ready", "folder": job["folder"]})
                on_event({"event": "probed", "folder": job["folder"], **next(self.answers)})
                on_event({"event": "ended", "folder": job["folder"], "status": "failed", "reason": "it ended"})

        return execute


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))


def cell(method: str = "fedra", seed: int = 0, **changes) -> Cell:
    resolved = config(method, seed, train__optimizer={"name": "sgd"}, **changes)
    return Cell(f"{method}{seed}", resolved, {}, {"torch": "2"}, [])


def totals_of(cells):
    return {one.id: {"flops": 100 + 10 * i} for i, one in enumerate(cells)}


@pytest.mark.parametrize(
    ("workers", "cells", "processes", "busy"),
    [(2, 7, 1, 2), (2, 1, 2, 2), (8, 3, 2, 6), (4, 4, 1, 4), (1, 5, 1, 1), (4, 0, 4, 0)],
)
def test_cells_share_the_workers(workers, cells, processes, busy):
    place = Place({}, workers, cells)
    assert (place.processes, place.busy) == (processes, busy)


def test_a_kind_is_probed_once_by_its_median_cell_and_then_kept():
    cells = [cell(seed=0), cell(seed=1), cell(seed=2)]
    first = Answering([{"rates": RATES}, {"rates": RATES | {"start": 3.0}}])
    found = Probes(TWO, first).rates(cells, totals_of(cells))
    assert found == {kind_of(cells[0]): Rates(**RATES | {"start": 2.0})}  # as many copies as processes; their median
    assert [job["manifest"]["id"] for job in first.jobs] == ["fedra1", "fedra1"]
    assert first.jobs[0]["probe"] == {"totals": {"flops": 110}, "processes": 1}
    assert Probes(TWO, Answering([])).rates(cells, totals_of(cells)) == found


@pytest.mark.parametrize(
    "other",
    [
        Place({"device": "cpu", "cpu": "another"}, 2, 2),
        Place({"device": "cpu", "cpu": "any"}, 1, 2),
        Place({"device": "cpu", "cpu": "any"}, 2, 1),
    ],
)
def test_what_was_found_at_one_place_is_not_used_at_another(other):
    cells = [cell()]
    Probes(TWO, Answering([{"rates": RATES}] * 2)).rates(cells, totals_of(cells))
    asked = Answering([{"rates": RATES}] * 2)
    Probes(other, asked).rates(cells, totals_of(cells))
    assert asked.jobs


def test_a_kind_that_cannot_be_probed_has_a_reason_and_is_tried_again():
    cells = [cell(), cell("odd")]
    answers = [{"rates": RATES}, {"reason": "KeyError: 'oops'"}]
    probes = Probes(TWO, Answering(answers))
    assert probes.rates(cells, totals_of(cells)).keys() == {kind_of(cells[0])}
    assert probes.reasons == {kind_of(cells[1]): "KeyError: 'oops'"}
    again = Answering([{"rates": RATES}] * 2)
    assert Probes(TWO, again).rates(cells, totals_of(cells)).keys() == set(map(kind_of, cells))
    assert {job["manifest"]["id"] for job in again.jobs} == {"odd0"}


def test_the_time_to_load_torch_is_measured_once():
    cells = [cell()]
    probes = Probes(TWO, Answering([{"rates": RATES}] * 2))
    assert probes.loading(cells, totals_of(cells)) > 0
    assert Probes(TWO, Answering([])).loading(cells, totals_of(cells)) == probes.loading(cells, totals_of(cells))
