"""Many cells are priced with few models, and each as if it were the only one."""

from __future__ import annotations

import pytest
from command import TINY, write_suite
from priced import totals_of

from fedbench.errors import NotApplicable
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.simulation import method_costs
from fedbench.simulation.cost_estimate import of_one_method
from fedbench.simulation.method_costs import MethodCosts
from fedbench.simulation.simulation import Simulation

SCENARIOS = """
  small: {}
  flat: {capacities: [1, 1]}
  drawn: {capacities: {uniform: [1, 2]}, participation: {count: 1}}
"""
SEEDS = (0, 1)


def built(monkeypatch) -> list[str]:
    """The methods that are built from now on, by name."""
    names: list[str] = []

    def noted(config, *given, **more):
        names.append(config["method"]["name"])
        return Simulation(config, *given, **more)

    monkeypatch.setattr(method_costs, "Simulation", noted)
    return names


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


def test_cells_that_one_method_can_serve_are_priced_with_one_model(tmp_path, monkeypatch, own_cache):
    facts, cells = configs(tmp_path, "fedra, head_only, allsmall, inclusivefl")
    names = built(monkeypatch)
    known = MethodCosts(facts)
    found = [known.totals(config) for config in cells]
    assert len(cells) == 4 * 3 * len(SEEDS)
    assert {name: names.count(name) for name in names} == {"fedra": 1, "head_only": 1, "allsmall": 3, "inclusivefl": 3}
    assert found[:2] == [alone(config, facts.registry) for config in cells[:2]]


@pytest.mark.parametrize("method", ["allsmall", "{name: odd, how: diverge}"])
def test_a_cell_costs_what_it_costs_alone(tmp_path, own_cache, method):
    facts, cells = configs(tmp_path, method)
    known = MethodCosts(facts)
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
def test_a_method_that_looks_at_the_seed_is_built_for_each(tmp_path, monkeypatch, own_cache, late):
    (tmp_path / "seeded.py").write_text(SEEDED)
    registry = Registry([str(TINY), str(tmp_path / "seeded.py")], in_place=True)
    path = write_suite(tmp_path, f"{{name: s, extends: seeded, late: {late}}}", {"\n  small: {}\n": SCENARIOS})
    cells = [point.config for point in load(path, registry).points(seeds=SEEDS)]
    names = built(monkeypatch)
    known = MethodCosts(CachedFacts(registry))
    for config in cells:
        assert known.totals(config) == alone(config, registry)
    assert len(names) == len(SEEDS)


def test_what_cannot_be_priced_is_told_of_its_own_cell_alone(tmp_path, own_cache):
    facts, cells = configs(tmp_path, "exclusive, fedra")
    told = [totals_of(facts, f"{i}", config) for i, config in enumerate(cells)]
    assert {"flops" in one for one in told[6:]} == {True}
    assert 0 < sum("not_applicable" in one for one in told[:6]) < 6


def test_no_image_is_made_for_the_price_of_a_cell_whose_labels_are_known(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    registry = Registry()
    config = load("suites/quickstart.yaml", registry).points(seeds=(0,))[0].config
    assert MethodCosts(CachedFacts(registry)).totals(config)["images"] > 0
    assert not (tmp_path / "splits").exists()
