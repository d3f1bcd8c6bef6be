"""Every method costs the same to the last digit where many cells are asked for and where each is alone."""

from __future__ import annotations

import pytest
import torch
from command import TINY
from every_method import METHODS, changed, tiny_cells

from fedbench.errors import NotApplicable
from fedbench.models import backbone, cost, counting
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.estimate import Costs
from fedbench.simulation.simulation import Simulation

DEVICE = {"flops": 1e9, "flops_bf16": 1e9, "down": 1e6, "up": 1e6}
KNOWN = {"roomy": {**DEVICE, "memory": 10**9}, "tight": {**DEVICE, "memory": 60_000}}


@pytest.fixture(scope="module")
def cells(own_cache, tmp_path_factory):
    registry = Registry([str(TINY)], in_place=True)
    return registry, tiny_cells(tmp_path_factory.mktemp("suite"), registry)


def on_devices(config, names):
    given = {"by_client": names, "server": "roomy", "known": KNOWN}
    return {**config, "devices": given, "fit": {"memory": True}, "capacities": {"all": True}}


def told(ask, config):
    try:
        return ask(config)
    except NotApplicable as reason:
        return str(reason)


def alone(registry, config):
    backbone._found.clear()
    with torch.device("meta"):
        simulation = Simulation(config, registry, "meta")
    return simulation.records.totals(simulation.method, sum(simulation.evaluation.sizes))


@pytest.mark.parametrize(("method", "models"), [("head_only", 1), ("fedra", 2)])
def test_what_has_no_adapters_is_counted_once_for_all_ranks(cells, monkeypatch, method, models):
    registry, configs = cells
    backbone._found.clear()
    monkeypatch.setattr(cost, "counted", lambda *given: counted.append(1) or counting.counted(*given))
    counted, found = [], []
    for rank in (1, 2):
        before, config = len(counted), configs["plain", method]
        found.append(Costs(CachedFacts(registry)).totals({**config, "adapter": {**config["adapter"], "rank": rank}}))
        found[-1]["counted"] = len(counted) > before
    assert [one["counted"] for one in found] == [True, models > 1]
    assert len({one["bytes_up"] for one in found}) == models


def test_prices_on_devices_are_those_of_a_method_alone(cells):
    """fedit is asked for ranks; test_prices.py has a method that looks at everybody's depths."""
    registry, configs = cells
    shared = Costs(CachedFacts(registry))
    for names in (["roomy", "tight"], ["roomy", "roomy"]):
        config = on_devices(configs["plain", "fedit"], names)
        found = told(shared.totals, config)
        assert found == alone(registry, config) and "flops" in found


@pytest.mark.slow
def test_shared_and_fresh_prices_are_equal_under_every_method(cells):
    registry, configs = cells
    for method in METHODS:
        shared, priced = Costs(CachedFacts(registry)), 0
        plain, rough = (changed(configs[name, method], name, "cohort") for name in ("plain", "rough"))
        some = [plain, {**plain, "seed": 1}, rough, {**rough, "capacities": {"uniform": [1, 1]}}]
        some += [on_devices(plain, names) for names in (["roomy", "tight"], ["roomy", "roomy"], ["tight", "tight"])]
        for config in some:
            found = told(shared.totals, config)
            assert found == told(lambda config: alone(registry, config), config), method
            priced += "flops" in found
        assert priced, method
