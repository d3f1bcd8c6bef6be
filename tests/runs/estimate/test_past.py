"""Rates from cells that finished before."""

from __future__ import annotations

import pytest
from factories import DOMAINS, eval_rows, prefix_rounds, write_cell

from fedbench.results import read_manifest, write_manifest
from fedbench.runs.estimate.past import past_rates
from fedbench.runs.estimate.rates import Rates, kind

MACHINE = {"device": "cpu", "cpu": "any", "cores": 2}
OPTIMIZER = {"name": "sgd", "lr": 0.1}


@pytest.fixture
def finished(tmp_path):
    """finished(seconds, seed, **changes of the manifest) -> the kind of a cell on disk that trained for 4 s."""

    def write(seconds: float, seed: int = 0, **changes) -> str:
        tested = {t: dict.fromkeys(DOMAINS, 0.5) for t in (6, 12)}
        rows = eval_rows(tested) + eval_rows(tested, "accuracy/last")
        rounds = [row | {"seconds": 1.0, "flops": 500} for row in prefix_rounds((1, 1), rounds=2)]
        folder = write_cell(tmp_path / "s", "fedra", seed, evaluation=rows, rounds=rounds, train__optimizer=OPTIMIZER)
        manifest = read_manifest(folder)
        manifest |= {"seconds": seconds, "machine": MACHINE} | changes
        write_manifest(folder, manifest)
        return kind(manifest["config"], manifest["versions"])

    return write


def test_training_is_timed_and_the_rest_is_testing(tmp_path, finished):
    which = finished(4.0 + 7.2)
    images = 2 * len(DOMAINS) * 300
    (rates,) = past_rates(tmp_path, {which}, MACHINE).values()
    assert rates == Rates(0.0, 0.0, 4.0 / 2000, 0.0, pytest.approx(7.2 / images))


def test_the_fastest_of_several_counts(tmp_path, finished):
    slow = finished(20.0)
    assert finished(8.0, seed=1) == slow
    (rates,) = past_rates(tmp_path, {slow}, MACHINE).values()
    assert rates.per_image == pytest.approx(4.0 / (2 * len(DOMAINS) * 300))


@pytest.mark.parametrize("key", ["cpu", "device", "gpu"])
def test_another_machine_says_nothing(tmp_path, finished, key):
    which = finished(20.0)
    assert past_rates(tmp_path, {which}, MACHINE | {key: "other"}) == {}


@pytest.mark.parametrize("changes", [{"status": "failed"}, {"seconds": 3.0}, {"result_version": 0}, {"machine": {}}])
def test_what_cannot_be_used_is_passed_over(tmp_path, finished, changes):
    which = finished(**{"seconds": 20.0} | changes)
    assert past_rates(tmp_path, {which}, MACHINE) == {}


def test_other_kinds_are_not_looked_at(tmp_path, finished):
    finished(20.0)
    assert past_rates(tmp_path, {"another"}, MACHINE) == {}
    assert past_rates(tmp_path / "nowhere", {"another"}, MACHINE) == {}
