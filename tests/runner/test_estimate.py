"""How long a suite takes, by past cells of the same kinds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from factories import DOMAINS, eval_rows, prefix_rounds, write_cell

from fedbench.results import read_manifest, write_manifest
from fedbench.runner.estimate import but_seed_and_rounds, past_rounds

MACHINE = {"device": "cpu", "cpu": "any", "cores": 2}
OPTIMIZER = {"name": "sgd", "lr": 0.1}


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
