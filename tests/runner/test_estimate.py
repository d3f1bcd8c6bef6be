"""How long a suite takes: kinds of cells, and their rates from past cells and from probes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from factories import DOMAINS, config, eval_rows, prefix_rounds, write_cell

from fedbench.results import read_manifest, write_manifest
from fedbench.results.identity import identity_of
from fedbench.runner import estimate
from fedbench.runner.cells import Cell
from fedbench.runner.estimate import (
    Rates,
    but_seed_and_rounds,
    kind_of,
    past_rounds,
    probed_rates,
    rates_of,
)

MACHINE = {"device": "cpu", "cpu": "any", "cores": 2}
OPTIMIZER = {"name": "sgd", "lr": 0.1}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0}
VERSIONS = {"torch": "2"}
TOTALS = {"flops": 1000, "tested": 600, "evaluations": 3, "images": 80, "client_rounds": 4}


# --- kinds of cells -----------------------------------------------------------------------------------------------


def cell(**changes):
    method = changes.pop("method", "fedra")
    return config(method, **{"train__optimizer": SGD} | changes)


def kind(config, versions):
    return kind_of(Cell("", config, {}, versions, []))


def test_a_cell_takes_the_sum_of_its_parts():
    rates = Rates(start=2.0, per_flop=0.01)
    assert rates.seconds(TOTALS) == 2.0 + (1000 + 600 * 1000 / 80 / 3) * 0.01


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 7},
        {"capacities": {"uniform": [1, 12]}},
        {"participation": {"count": 3}},
        {"train__rounds": 99},
        {"train__max_steps": 5},
        {"train__optimizer": SGD | {"lr": 0.1, "momentum": 0.0}},
        {"data__partition": {"name": "dirichlet", "alpha": 0.5}},
        {"evaluation__every": 1},
    ],
)
def test_what_does_not_change_the_speed_is_of_one_kind(changes):
    assert kind(cell(**changes), VERSIONS) == kind(cell(), VERSIONS)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "depthfl"},
        {"backbone": {"name": "micro_mixer"}},
        {"adapter__rank": 4},
        {"data__image_size": 64},
        {"train__batch_size": 8},
        {"train__clip": 1.0},
        {"train__optimizer": SGD | {"name": "adamw"}},
        {"train__regularizer": {"fedprox": 0.1}},
        {"engine": "cohort"},
        {"precision": "bf16"},
        {"profile": "reference"},
    ],
)
def test_what_may_change_the_speed_is_another_kind(changes):
    assert kind(cell(**changes), VERSIONS) != kind(cell(), VERSIONS)


def test_another_version_is_another_kind():
    assert kind(cell(), VERSIONS) != kind(cell(), {"torch": "3"})


def test_a_kind_leaves_the_configuration_as_it_is():
    given = cell()
    kind(given, VERSIONS)
    assert given == cell()


# --- past cells ---------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path):
    """finished(seconds, seed, **changes of the manifest) -> the folder of a cell of two rounds that trained for 4 s."""

    def write(seconds: float, seed: int = 0, **changes) -> Path:
        tested = {t: dict.fromkeys(DOMAINS, 0.5) for t in (6, 12)}
        rows = eval_rows(tested) + eval_rows(tested, "accuracy/last")
        rounds = [row | {"seconds": 1.0, "flops": 500} for row in prefix_rounds((1, 1), rounds=2)]
        folder = write_cell(tmp_path / "s", "fedra", seed, evaluation=rows, rounds=rounds, train__optimizer=OPTIMIZER)
        manifest = read_manifest(folder)
        manifest |= {"seconds": seconds, "machine": MACHINE} | changes
        write_manifest(folder, manifest)
        return folder

    return write


def test_training_is_timed_and_the_rest_is_the_start(finished):
    steps = sum(row["steps"] for row in prefix_rounds((1, 1), rounds=2))
    tested, trained = 2 * len(DOMAINS) * 300, steps * config("fedra")["train"]["batch_size"]
    start = pytest.approx(1000 - 2000 * (1 + tested / trained / 3) / 500)
    assert rates_of(finished(1000.0)) == Rates(start, 1 / 500)


def test_clients_that_are_trained_side_by_side_take_no_longer_than_their_cell(finished):
    rates = rates_of(finished(3.0))
    assert rates.start == 0.0 and rates.per_flop < 3.0 / 2000


def test_the_fastest_of_cells_that_differ_in_seed_and_rounds_counts(tmp_path, finished):
    manifest = read_manifest(finished(2000.0))
    finished(1000.0, seed=6)  # whose clients have the capacities of seed 0 in another order
    rounds = manifest["config"]["train"]["rounds"]
    assert past_rounds(tmp_path, MACHINE) == {but_seed_and_rounds(manifest["config"]): 1000.0 / rounds}
    longer = manifest["config"] | {"train": manifest["config"]["train"] | {"rounds": 99}}
    assert but_seed_and_rounds(longer) in past_rounds(tmp_path, MACHINE)
    assert but_seed_and_rounds(longer | {"precision": "bf16"}) not in past_rounds(tmp_path, MACHINE)


@pytest.mark.parametrize("key", ["cpu", "device", "gpu"])
def test_another_machine_says_nothing(tmp_path, finished, key):
    finished(20.0)
    assert past_rounds(tmp_path, MACHINE | {key: "other"}) == {}


@pytest.mark.parametrize("changes", [{"status": "failed"}, {"seconds": 0.0}, {"machine": {}}])
def test_what_cannot_be_used_is_passed_over(tmp_path, finished, changes):
    finished(**{"seconds": 20.0} | changes)
    assert past_rounds(tmp_path, MACHINE) == past_rounds(tmp_path / "nowhere", MACHINE) == {}


def test_a_cell_of_another_version_of_results_is_passed_over(tmp_path, finished):
    finished(20.0)
    (file,) = tmp_path.glob("s/**/manifest.json")
    file.write_text(re.sub(r'"result_version": \d+', '"result_version": 0', file.read_text()))
    assert past_rounds(tmp_path, MACHINE) == {}


# --- probes -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))


@dataclass
class Executor:
    """In the place of the registry: an executor whose cells take a minute. Cells of these methods fail."""

    failing: tuple[str, ...] = ()
    files: dict = field(default_factory=dict)
    found: dict = field(default_factory=dict)
    jobs: list[dict] = field(default_factory=list)

    def make(self, kind, ref, workers, timeout):
        return self.execute

    def execute(self, jobs, on_event):
        for job in map(json.loads, jobs):
            self.jobs.append(job)
            folder = Path(job["folder"])
            failed = job["manifest"]["config"]["method"]["name"] in self.failing
            if not failed:
                rounds = [row | {"seconds": 3.0, "flops": 5000} for row in prefix_rounds((1,), rounds=2)]
                tested = eval_rows({t: dict.fromkeys(DOMAINS, 0.5) for t in (1, 2)})
                made = write_cell(folder.parent / "s", "fedra", evaluation=tested, rounds=rounds)
                manifest = read_manifest(made) | {"seconds": 60.0}
                shutil.move(made, folder)
                write_manifest(folder, manifest)
            end = {"status": "failed", "reason": "KeyError: 'oops'"} if failed else {"status": "finished"}
            on_event({"event": "ended", "folder": str(folder), **end})


def one(method: str = "fedra", seed: int = 0, **changes) -> Cell:
    resolved = config(method, seed, train__optimizer={"name": "sgd"}, **changes)
    return Cell(f"{method}{seed}", resolved, {}, {"torch": "2"}, [])


def totals_of(cells):
    return {cell.id: {**TOTALS, "flops": 100 + 10 * i} for i, cell in enumerate(cells)}


def probed(executor, *cells, machine=MACHINE):
    return probed_rates(cells, totals_of(cells), machine, 2, executor)


def test_a_kind_is_tried_once_by_its_median_cell_and_then_kept():
    cells = [one(seed=0), one(seed=1), one(seed=2)]
    first, again = Executor(), Executor()
    found, reasons = probed(first, *cells)
    assert found.keys() == {kind_of(cells[0])} and not reasons
    assert found[kind_of(cells[0])].per_flop == 3.0 / 5000
    (job,) = first.jobs
    assert job["manifest"]["config"]["seed"] == 1 and job["manifest"]["id"] == identity_of(job["manifest"])
    assert job["manifest"]["config"]["train"]["rounds"] == job["manifest"]["config"]["evaluation"]["every"] == 2
    assert probed(again, *cells) == (found, {}) and not again.jobs


def test_clients_train_for_as_few_steps_as_can_be_afforded_and_none_is_lost(monkeypatch):
    monkeypatch.setitem(estimate.ROUND_FLOPS, "cpu", 10)
    tried = Executor()
    cell = one(faults={"dropout": 0.5}, train__rounds=2, train__batch_size=4, train__max_steps=None)
    probed_rates([cell], {cell.id: {**TOTALS, "flops": 40}}, MACHINE, 2, tried)
    (job,) = tried.jobs
    assert job["manifest"]["config"]["train"]["max_steps"] == 2  # of five, at 20 FLOPs a round
    assert "faults" not in job["manifest"]["config"]


def test_a_step_that_costs_more_than_a_round_may_is_taken_once_and_few_examples_are_tested(monkeypatch):
    monkeypatch.setitem(estimate.ROUND_FLOPS, "cpu", 100)
    jobs = {}
    for flops in (40, 1000):  # for 80 images in all, 20 steps of four images
        tried, cell = Executor(), one(train__rounds=2, train__batch_size=4, train__max_steps=None, train__clip=flops)
        probed_rates([cell], {cell.id: {**TOTALS, "flops": flops}}, MACHINE, 2, tried)
        (jobs[flops],) = tried.jobs
    configs = {flops: job["manifest"]["config"] for flops, job in jobs.items()}
    assert [config["train"]["rounds"] for config in configs.values()] == [2, 2]
    assert [config["train"]["max_steps"] for config in configs.values()] == [None, 1]
    assert [job["tested"] for job in jobs.values()] == [200, 8]
    monkeypatch.setitem(estimate.ROUND_FLOPS, "cpu", 10)
    tried = Executor()
    probed_rates([cell], {cell.id: {**TOTALS, "flops": 1000}}, {**MACHINE, "cpu": "slow"}, 2, tried)
    (job,) = tried.jobs
    train = job["manifest"]["config"]["train"]
    assert (train["rounds"], train["max_steps"], job["tested"]) == (1, 1, 0)


def test_probes_that_ended_before_an_interruption_are_kept_and_counted():
    cells, told = [one(), one("odd")], []

    class Stopped(Executor):
        def execute(self, jobs, on_event):
            super().execute([next(jobs)], on_event)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probed_rates(cells, totals_of(cells), MACHINE, 2, Stopped(), lambda *count: told.append(count))
    again = Executor()
    found, _ = probed(again, *cells)
    assert told == [(1, 2)] and found.keys() == set(map(kind_of, cells)) and len(again.jobs) == 1


def test_what_was_found_on_one_machine_is_not_used_on_another():
    probed(Executor(), one())
    asked = Executor()
    probed(asked, one(), machine={"device": "cpu", "cpu": "another"})
    assert asked.jobs


def test_a_kind_whose_short_cell_fails_has_a_reason_and_is_tried_again():
    cells = [one(), one("odd")]
    found, reasons = probed(Executor(("odd",)), *cells)
    assert found.keys() == {kind_of(cells[0])}
    assert reasons == {kind_of(cells[1]): "KeyError: 'oops'"}
    again = Executor()
    found, reasons = probed(again, *cells)
    assert found.keys() == set(map(kind_of, cells)) and not reasons
    assert [job["manifest"]["config"]["method"]["name"] for job in again.jobs] == ["odd"]
