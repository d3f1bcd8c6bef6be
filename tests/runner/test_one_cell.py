"""fedbench/runner/cells.py: names that differ only in what a method ignores have one cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import TINY, fedbench, run, write_suite

from fedbench.results import content_hash, load, read_manifest

SCENARIOS = """
scenarios:
  small: {}
  drawn: {capacities: {uniform: [1, 2]}}
  whole: {capacities: all, adapter: {name: lora, rank: 1, alpha: 1}}
"""
NAMES = 6  # two methods in three scenarios
CELLS = 3  # head_only reads neither depths nor adapter, AllLarge reads the adapter


def suite(folder: Path, methods: str = "alllarge, head_only") -> Path:
    return write_suite(folder, methods, {"scenarios:\n  small: {}\n": SCENARIOS})


def folders(results: Path) -> dict[str, str]:
    """The folder of each name, by scenario and method."""
    index = json.loads((results / "tiny" / "index.json").read_text())
    return {f"{e['scenario']}/{e['method']}": e["cell"] for e in index["entries"]}


@pytest.fixture(scope="module")
def ran(tmp_path_factory, own_cache):
    """A suite that was run: (folder, what the run printed)."""
    folder = tmp_path_factory.mktemp("one")
    suite(folder)
    return folder, run(cwd=folder)


def test_names_that_differ_in_what_a_method_ignores_have_one_cell(ran):
    folder, done = ran
    named = folders(folder / "r")
    assert len(named) == NAMES and len(set(named.values())) == CELLS
    assert len({named[f"{scenario}/head_only"] for scenario in ("small", "drawn", "whole")}) == 1
    assert named["small/alllarge"] == named["drawn/alllarge"] != named["whole/alllarge"]
    assert f"{CELLS} cells" in done.stdout


def test_each_name_has_the_settings_of_its_own_scenario(ran):
    folder, _ = ran
    results = {f"{r.entry.scenario}/{r.entry.method}": r for r in load([folder / "r"])}
    assert results["small/head_only"].manifest["config"]["capacities"] == {"by_client": [2, 1]}
    assert results["drawn/head_only"].manifest["config"]["capacities"] == {"uniform": [1, 2]}
    assert results["whole/head_only"].manifest["config"]["adapter"]["rank"] == 1
    assert results["small/head_only"].manifest["config"]["adapter"]["rank"] != 1


def test_a_leaderboard_of_each_scenario_has_every_method(ran):
    folder, _ = ran
    rows = json.loads(fedbench("compare", folder / "r", "--format", "json", cwd=folder).stdout)["rows"]
    assert {(row["scenario"], row["variant"], row["method"]) for row in rows} == {
        (scenario, "", method) for scenario in ("small", "drawn", "whole") for method in ("alllarge", "head_only")
    }


def test_the_content_is_the_same_whichever_name_is_computed_first(tmp_path, ran):
    folder, _ = ran
    suite(tmp_path)
    run("--scenario", "[dw]*", cwd=tmp_path)
    done = json.loads(run("--json", cwd=tmp_path).stdout)
    assert done["ran"] == 0
    assert content_hash(tmp_path / "r") == content_hash(folder / "r")
    cell = tmp_path / "r" / "tiny" / folders(tmp_path / "r")["small/head_only"]
    assert read_manifest(cell)["config"]["capacities"] == {"uniform": [1, 2]}


def test_a_method_that_ignores_nothing_has_a_cell_in_each_scenario(tmp_path):
    suite(tmp_path, "fedra")
    rows = json.loads(fedbench("plan", "tiny.yaml", "--plugin", TINY, "--format", "json", cwd=tmp_path).stdout)["cells"]
    assert len({row["id"] for row in rows}) == 3
