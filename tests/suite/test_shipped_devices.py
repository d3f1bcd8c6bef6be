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


def test_whole_batches_are_limited_by_memory_and_batches_in_parts_by_time(suites):
    for suite in suites.values():
        configs = {cell.scenario: cell.config for cell in suite.points()}
        fits = {name: (config["fit"], config["train"].get("micro_batch")) for name, config in configs.items()}
        hurried = {"memory": True, "seconds": 300}
        assert fits == {"whole_batches": ({"memory": True}, None), "hurried": (hurried, "auto")}


def test_frugal_has_both_answers_to_little_memory_on_the_machines_of_devices(suites):
    catalogue = Registry().catalogue
    found = load(SUITES / "frugal.yaml", catalogue)
    assert set(found.methods) >= {
        "fedra",
        "inclusivefl",
        "flora",
        "flasc",
        "fedkseed",
        "spry",
        "fwdllm",
        "block_stages",
    }
    assert set(found.methods) >= {"alllarge", "allsmall", "head_only", "majority", "zero_round"}
    assert len(found.seeds) == 3
    machines = known(found)
    assert all(machines[name] == numbers for name, numbers in known(suites["devices"]).items() if name in machines)
    coded = {cell.method: cell.config["train"] for cell in found.points()}
    assert coded["fedra_int8"]["uploads"] == coded["fedra_int8"]["downloads"] == {"codec": "int8"}
    assert "uploads" not in coded["fedra"]
    for overlay in ("emoji", "texts"):
        assert load(SUITES / "frugal.yaml", catalogue, data=overlay).points()
