"""The shipped suites of devices: the same machines, at their sizes and scaled by the factors that are stated."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbench.devices.table import SHIPPED
from fedbench.registry.registry import Registry
from fedbench.suite import load

SUITES = Path(__file__).parents[2] / "suites"
FACTORS = {"memory": 200, "flops": 2200, "flops_bf16": 2200, "down": 200, "up": 200}  # that the suite states
FAMILIES = {"fedra", "inclusivefl", "depthfl", "flora", "hetlora", "heterofl", "fedrolex", "fedavg", "fedv", "festa"}


@pytest.fixture(scope="module")
def suites():
    catalogue = Registry().catalogue
    return {name: load(SUITES / f"{name}.yaml", catalogue) for name in ("devices", "devices_vit_b")}


def known(suite):
    return suite.points()[0].config["devices"]["known"]


def test_every_family_takes_part_in_both(suites):
    for suite in suites.values():
        assert set(suite.methods) >= FAMILIES | {"alllarge", "allsmall", "head_only", "exclusive"}
    assert suites["devices"].seeds == (0, 1, 2)


def test_the_embedded_machines_are_the_real_ones_by_the_stated_factors(suites):
    real, scaled = known(suites["devices_vit_b"]), known(suites["devices"])
    assert real.keys() == scaled.keys()
    for name, numbers in scaled.items():
        assert real[name]["memory"] == SHIPPED[name].memory
        for what, factor in FACTORS.items():
            assert numbers[what] == pytest.approx(real[name][what] / factor, rel=0.02), (name, what)


def test_both_are_limited_by_memory_alone_and_by_time_as_well(suites):
    for suite in suites.values():
        fits = {cell.scenario: cell.config["fit"] for cell in suite.points()}
        assert fits == {"memory": {"memory": True}, "hurried": {"memory": True, "seconds": 300}}
