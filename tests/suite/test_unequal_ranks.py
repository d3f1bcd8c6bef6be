"""The shipped suite of unequal ranks: its scenarios, its methods, and the controls beside them."""

from __future__ import annotations

from pathlib import Path

from fedbench.registry.registry import Registry
from fedbench.suite import load

FILE = Path(__file__).parents[2] / "suites/unequal_ranks.yaml"


def test_unequal_ranks_has_a_ceiling_a_floor_and_a_linear_probe_beside_its_methods():
    found = load(FILE, Registry().catalogue)
    methods = {label: found.points(methods=[label])[0].config["method"] for label in found.methods}
    assert set(methods) >= {"fedit", "hetlora", "flexlora", "flora", "raflora", "fed_plora", "alllarge", "head_only"}
    assert methods["all_smallest"] == {**methods["fedit"], "smallest": True}
    ranks = {cell.scenario: cell.config["ranks"] for cell in found.points()}
    assert ranks == {
        "mixed": {"by_client": [8, 8, 4, 4, 2, 2]},
        "extreme": {"by_client": [8, 1, 1, 1, 1, 1]},
        "uniform": {"uniform": [1, 8]},
    }
    turned = found.points(scenarios=["mixed"], seeds=[1])[0].config
    assert turned["ranks"] == {"by_client": [8, 4, 4, 2, 2, 8]}
    assert turned["adapter"]["rank"] == 8 and turned["capacities"] == {"all": True}
