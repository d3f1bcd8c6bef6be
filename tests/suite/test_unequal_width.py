"""The shipped suite of unequal width: its methods, and the controls beside them."""

from __future__ import annotations

from pathlib import Path

from fedbench.registry.registry import Registry
from fedbench.suite import load

FILE = Path(__file__).parents[2] / "suites/unequal_width.yaml"


def test_unequal_width_has_a_ceiling_a_floor_and_full_models_alone_beside_its_methods():
    found = load(FILE, Registry().catalogue)
    method = {label: found.points(methods=[label])[0].config["method"] for label in found.methods}
    assert {method[label]["name"] for label in method} == {"heterofl", "fedrolex", "fjord", "fedavg", "majority"}
    assert method["fedavg_quarter"] == {**method["fedavg"], "width": 0.25}
    assert method["full_width_only"] == {**method["heterofl"], "rates": [1]}
    assert method["fjord_distilled"] == {**method["fjord"], "distill": True}
    for seed, cell in ((0, found.points()[0]), (2, found.points(seeds=[2])[0])):
        widths = [1, 1, 0.5, 0.5, 0.25, 0.25]
        assert cell.config["widths"] == {"by_domain": widths[seed:] + widths[:seed]}
    assert {cell.backbone for cell in found.points()} == {"micro_cnn", "micro_vit"}
