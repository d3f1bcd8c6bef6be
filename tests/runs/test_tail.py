"""In which order the last cells of a run are begun, and that runs and estimates of them keep to it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from command import TINY, write_suite

from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.runs import estimate
from fedbench.runs.options import Options
from fedbench.runs.plan import cells_of
from fedbench.runs.run import Run
from fedbench.runs.runner import load
from fedbench.runs.tail import longest_last_ones_first

CELLS = [SimpleNamespace(id=name) for name in "abcdefg"]
FLOPS = {"a": 1, "b": 9, "c": 10, "d": 13, "e": 3, "f": 2, "g": 4}
TOTALS = {id: {"flops": flops, "images": 10, "tested": 5} for id, flops in FLOPS.items()}


@pytest.mark.parametrize(
    ("workers", "order"), [(1, "abcdefg"), (2, "abcdgef"), (3, "adcbgef"), (4, "dcbgefa"), (9, "dcbgefa")]
)
def test_the_last_two_for_each_worker_begin_with_the_longest(workers, order):
    assert "".join(cell.id for cell in longest_last_ones_first(CELLS, TOTALS, workers)) == order


def test_testing_counts_and_what_is_not_known_comes_last():
    totals = {**TOTALS, "f": {"flops": 2, "images": 10, "tested": 500}, "d": {}}
    assert "".join(cell.id for cell in longest_last_ones_first(CELLS, totals, 2)) == "abcfged"
    assert longest_last_ones_first([], {}, 2) == []


@pytest.mark.parametrize(("jobs", "order"), [(1, ["head_only", "fedra", "alllarge"]), (2, None)])
def test_a_run_hands_cells_out_in_that_order(tmp_path, own_cache, jobs, order):
    registry = Registry([str(TINY)])
    suite = load(write_suite(tmp_path, "head_only, fedra, alllarge"), registry)
    assets = Assets(registry, suite.base)
    options = Options(results=str(tmp_path / "r"), device="cpu", jobs=jobs, own_processes=True)
    run = Run.prepare(suite, cells_of(suite.points(), registry, assets), registry, assets, options)
    begun = [cell.config["method"]["name"] for cell in run.missing]
    assert begun == (order or ["alllarge", "fedra", "head_only"])


def test_an_estimate_packs_cells_in_that_order(monkeypatch):
    """Six cells of a second and one of five at the end, which would be alone at work from the third second on."""
    seconds = {**dict.fromkeys("abcdef", 1.0), "g": 5.0}
    monkeypatch.setattr(estimate, "folders_of", lambda cells, folder: {cell.id: cell.id for cell in cells})
    monkeypatch.setattr(estimate, "read_manifest", lambda id: {"status": "finished", "seconds": seconds[id]})
    totals = {id: {"flops": each, "images": 1, "tested": 0} for id, each in seconds.items()}
    assert estimate.side_by_side(seconds.values(), 2) == 8
    assert estimate.estimate(CELLS, totals, Path("r", "s"), Registry(), workers=2).total == 6
