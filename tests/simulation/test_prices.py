"""Many cells are priced in one process, and each as if it were the only one."""

from __future__ import annotations

import pytest
from command import TINY, write_suite
from priced import totals_of

from fedbench.errors import NotApplicable
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.estimate import Costs, of_one_method
from fedbench.runner.runner import load
from fedbench.simulation.simulation import Simulation

SCENARIOS = """
  small: {}
  flat: {capacities: [1, 1]}
  drawn: {capacities: {uniform: [1, 2]}, participation: {count: 1}}
"""
SEEDS = (0, 1)


def configs(folder, methods: str) -> tuple[CachedFacts, list[dict]]:
    registry = Registry([str(TINY)], in_place=True)
    path = write_suite(folder, methods, {"\n  small: {}\n": SCENARIOS})
    points = load(path, registry).points(seeds=SEEDS)
    together: dict[str, list[dict]] = {}
    for point in points:
        together.setdefault(of_one_method(point.config), []).append(point.config)
    return CachedFacts(registry), [config for group in together.values() for config in group]


def totals(of, *given):
    try:
        return of(*given)
    except NotApplicable as reason:
        return str(reason)


def alone(config, registry):
    simulation = Simulation(config, registry, "meta")
    return simulation.records.totals(simulation.method, sum(simulation.evaluation.sizes))


@pytest.mark.parametrize("method", ["allsmall", "{name: odd, how: diverge}"])
def test_a_cell_costs_what_it_costs_alone(tmp_path, own_cache, method):
    facts, cells = configs(tmp_path, method)
    known = Costs(facts)
    for config in cells:
        assert totals(known.totals, config) == totals(alone, config, facts.registry)


SEEDED = """
from dataclasses import replace
from fedbench import hookimpl

def seeded(setup, late: bool = False):
    '''Costs as many bytes as its seed says; late: which it looks up when a client of two layers is priced.'''
    from fedbench.families.layerwise import layerwise

    method, seed = layerwise(setup), 0 if late else setup.seed

    def cost(capacity, t):
        paid = method.cost(capacity, t)
        return replace(paid, flops_per_image=100 * (setup.seed if late and capacity == 2 else seed) + capacity)

    return replace(method, cost=cost)

@hookimpl
def fedbench_register_methods(register):
    register("seeded", seeded)
"""


@pytest.mark.parametrize("late", ["false", "true"])
def test_a_method_that_looks_at_the_seed_is_priced_for_each(tmp_path, own_cache, late):
    (tmp_path / "seeded.py").write_text(SEEDED)
    registry = Registry([str(TINY), str(tmp_path / "seeded.py")], in_place=True)
    path = write_suite(tmp_path, f"{{name: s, extends: seeded, late: {late}}}", {"\n  small: {}\n": SCENARIOS})
    cells = [point.config for point in load(path, registry).points(seeds=SEEDS)]
    known = Costs(CachedFacts(registry))
    found = [known.totals(config) for config in cells]
    assert found == [alone(config, registry) for config in cells]
    assert len({one["flops"] for one in found}) > 1


def test_candidates_for_a_learning_rate_are_priced_once(tmp_path, monkeypatch, own_cache):
    facts, (config, *_) = configs(tmp_path, "fedra")
    known = Costs(facts)
    first = known.totals(config)
    monkeypatch.setattr("fedbench.simulation.simulation.Simulation", None)
    train = {**config["train"], "optimizer": {**config["train"]["optimizer"], "lr": 0.123}}
    assert known.totals({**config, "train": train}) == first


def test_what_cannot_be_priced_is_told_of_its_own_cell_alone(tmp_path, own_cache):
    facts, cells = configs(tmp_path, "exclusive, fedra")
    told = [totals_of(facts, f"{i}", config) for i, config in enumerate(cells)]
    assert {"flops" in one for one in told[6:]} == {True}
    assert 0 < sum("not_applicable" in one for one in told[:6]) < 6


def test_no_image_is_made_for_the_price_of_a_cell_whose_labels_are_known(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    registry = Registry()
    config = load("suites/quickstart.yaml", registry).points(seeds=(0,))[0].config
    assert Costs(CachedFacts(registry)).totals(config)["images"] > 0
    assert not (tmp_path / "splits").exists()
