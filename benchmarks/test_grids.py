"""Large grids: what planning 2,000 cells takes, from an empty cache and again, and how many trivial cells run a second.

`tests/simulation/test_prices.py` counts models that are built.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import TINY
from spending import spent

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load

PLANNED = """
suite: planned
defaults:
  adapter: {name: lora, alpha: 8, dropout: 0.0}
  data: strokes6
  train: {rounds: 1, max_steps: 1, batch_size: 4, optimizer: {name: sgd, lr: 0.05, momentum: 0.0, weight_decay: 0.0}}
scenarios:
  all_6: {capacities: [6, 6, 6, 6, 6, 6]}
  mixed: {capacities: [10, 10, 6, 6, 4, 4]}
  steep: {capacities: [12, 10, 8, 6, 4, 3]}
  crowd:
    capacities: {uniform: [1, 12]}
    data: {partition: {name: dirichlet, alpha: 0.5, clients_per_domain: 2}}
methods: [fedra, inclusivefl, depthfl, allsmall, head_only]
sweep:
  backbone: [micro_vit, micro_mixer]
  adapter.rank: [1, 2, 3, 4, 5]
"""
TRIVIAL = """
suite: trivial
defaults:
  backbone: tiny
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0.0}
  data: dots
  capacities: [2, 1]
  train: {rounds: 1, max_steps: 1, batch_size: 2, optimizer: {name: sgd, lr: 0.05, momentum: 0.0, weight_decay: 0.0}}
scenarios:
  small: {}
methods: [head_only, fedra]
"""


def suite(folder: Path, text: str, seeds: int) -> Path:
    """One of the suites above on so many seeds: all cells are distinct."""
    name = text.split()[1]
    path = folder / f"{name}.yaml"
    path.write_text(f"{text}seeds: {list(range(seeds))}\n")
    return path


def distinct(path: Path, *plugins: str) -> int:
    """How many cells of a suite differ in their configuration."""
    return len({json.dumps(point.config, sort_keys=True) for point in load(path, Registry(plugins)).points()})


def test_every_cell_of_a_suite_is_another(tmp_path, own_cache):
    assert distinct(suite(tmp_path, TRIVIAL, 5), str(TINY)) == 10


def test_a_plan_of_2000_cells(benchmark, tmp_path, figures):
    if benchmark.disabled:
        pytest.skip("measured by tox -e bench")
    path = suite(tmp_path, PLANNED, 10)
    assert distinct(path) == 2000
    first = benchmark.pedantic(lambda: spent(tmp_path, "plan", path), rounds=1)
    again = spent(tmp_path, "plan", path)
    lines = [
        f"{name:<20}{one['seconds']:8.1f}{one['processor']:10.1f}{one['mib']:8.0f}"
        for name, one in (("an empty cache", first), ("again", again))
    ]
    head = "plan of 2,000 cells      seconds processor     MiB"
    figures.add("grids: plan", {"first": first, "again": again}, [head, *lines])


def test_trivial_cells(benchmark, tmp_path, figures):
    if benchmark.disabled:
        pytest.skip("measured by tox -e bench")
    seeds, warm = 150, 10  # enough for what a run takes beside its cells, which wavers by seconds, not to tell
    path = suite(tmp_path, TRIVIAL, seeds + warm)
    words = [word for seed in range(seeds, seeds + warm) for word in ("--seed", seed)]
    spent(tmp_path, "run", path, *words)  # the cache, and what every run takes beside its cells
    few = spent(tmp_path, "run", path, "--force", *words)
    many = benchmark.pedantic(lambda: spent(tmp_path, "run", path, "--force"), rounds=1)
    cells = 2 * seeds
    each = {key: (many[key] - few[key]) / cells for key in ("seconds", "processor")}
    told = f"a trivial cell: {each['seconds']:.2f} s by the clock, {each['processor']:.2f} processor seconds"
    figures.add("grids: cells", each, [told])
