"""Whole suites as users run them: seconds, processor seconds, and how far that is from the arithmetic alone.

The ordinary suite checks on tiny cells what is counted. `tox -e bench` measures; docs/benchmarks.md has the figures.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from command import TINY, write_suite
from contenders.floor import peak
from spending import spent
from torch.utils.flop_counter import FlopCounterMode

from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.cells import cells_of
from fedbench.runner.estimate import cost_estimates
from fedbench.runner.runner import load

SUITES = Path(__file__).parents[1] / "suites"
MEASURED = ("quickstart", "feature_skew", "extreme_hetero")


def work_of(path: Path, plugins: Sequence[str] = ()) -> dict[str, int]:
    """How many `cells` a suite has, how many of them are `computed`, and the `flops` of these: of the clients' training
    as a plan counts them, and of a forward pass of the whole backbone for every image that is tested."""
    registry = Registry(plugins)
    suite = load(path, registry)
    facts = CachedFacts(registry, suite.base)
    cells = cells_of(suite.points(), registry, facts)
    totals: Mapping[str, Any] = cost_estimates([(cell.id, cell.config) for cell in cells], facts)
    computed = [cell for cell in cells if "flops" in totals[cell.id]]
    answers = functools.cache(lambda name: _forward(facts, named[name]))
    named = {str(cell.config["backbone"]): cell.config["backbone"] for cell in computed}
    of = {cell.id: totals[cell.id]["tested"] * answers(str(cell.config["backbone"])) for cell in computed}
    flops = sum(totals[cell.id]["flops"] + of[cell.id] for cell in computed)
    return {"cells": len(cells), "computed": len(computed), "flops": flops}


def _forward(facts: CachedFacts, backbone: Mapping[str, Any]) -> int:
    """FLOPs (2 a multiply-add) of one image through a backbone."""
    size = facts.backbone(backbone)["image_size"]
    with FlopCounterMode(display=False) as count, torch.no_grad():
        facts.source(backbone).model(torch.empty(1, 3, size, size, device="meta"))
    return count.get_total_flops()


def test_the_work_of_a_suite_is_that_of_its_cells_but_counts_equal_ones_once(tmp_path):
    def work(scenarios: str) -> dict[str, int]:
        return work_of(write_suite(tmp_path, "head_only", {"  small: {}\n": scenarios}), [str(TINY)])

    one = work("  small: {}\n")
    two = work("  small: {}\n  drawn: {capacities: {uniform: [1, 2]}}\n")
    assert one == {"cells": 1, "computed": 1, "flops": one["flops"]} and one["flops"] > 0
    assert two == one


@pytest.mark.parametrize("name", MEASURED)
def test_a_whole_suite(benchmark, tmp_path, figures, name):
    """From images that are there to the last table; prices are computed, as in a first run."""
    if benchmark.disabled:
        pytest.skip("measured by tox -e bench")
    path = SUITES / f"{name}.yaml"
    work = work_of(path)
    spent(tmp_path, "run", path, "--set", "train.rounds=1")  # other cells
    took = dict[str, float]()
    benchmark.pedantic(lambda: took.update(spent(tmp_path, "run", path)), rounds=1)
    rates = peak()
    floor = work["flops"] / max(rates.values())
    facts = {**work, **took, "peak": rates, "floor": floor, "share": floor / took["seconds"]}
    head = (
        f"{'suite':<18}{'cells':>7}{'computed':>10}{'seconds':>9}{'processor':>11}{'others':>8}{'floor':>8}{'share':>7}"
    )
    line = f"{name:<18}{work['cells']:>7}{work['computed']:>10}{took['seconds']:>9.1f}{took['processor']:>11.1f}"
    line += f"{took['others']:>8.0%}{floor:>8.1f}{facts['share']:>7.0%}"
    figures.add(f"suites: {name}", facts, [head, line])
