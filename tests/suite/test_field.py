"""The shipped suite of the whole field: no registered method is missing, and each is limited in its own unit."""

from __future__ import annotations

from pathlib import Path

from fedbench.registry.registry import Registry
from fedbench.suite import load

FILE = Path(__file__).parents[2] / "suites/field.yaml"


def test_every_registered_method_takes_part():
    catalogue = Registry().catalogue
    found = load(FILE, catalogue)
    cells = found.points(seeds=[0])
    assert {cell.config["method"]["name"] for cell in cells} == catalogue.components["method"].keys()
    assert len({cell.seed for cell in found.points()}) == 3
    config = cells[0].config
    assert config["capacities"] == {"by_client": [12, 10, 8, 6, 4, 3]}  # the quickstart's
    assert config["ranks"] == {"by_client": [8, 7, 5, 4, 3, 2]} and config["data"]["proxy"] == {"images": 60}
    assert config["widths"] == {"by_client": [1, 0.75, 0.5, 0.5, 0.25, 0.25]}
