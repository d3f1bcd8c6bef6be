"""fedbench/runs/twins.py and taking.py: cells that are equal in all that matters are computed once, as real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import TINY, fedbench, run, write_suite

from fedbench.results import content_hash, read_manifest, read_rows
from fedbench.results.files import damage
from fedbench.runs import taking
from fedbench.runs.runner import run as run_suite

SCENARIOS = """
scenarios:
  small: {}
  drawn: {capacities: {uniform: [1, 2]}}
  whole: {capacities: all, adapter: {name: lora, rank: 1, alpha: 1}}
"""
METHODS = "alllarge, head_only"
ALL, AS_OTHERS = 6, 3  # AllLarge where depths are drawn, and head_only twice


def suite(folder: Path, methods: str = METHODS, **changes: str) -> Path:
    text = {"scenarios:\n  small: {}\n": SCENARIOS, "rounds: 2": "rounds: 3", **changes}
    return write_suite(folder, methods, text)


def folders(results: Path) -> dict[str, Path]:
    """The folder of each cell, by scenario and method."""
    index = json.loads((results / "tiny" / "index.json").read_text())
    return {f"{e['scenario']}/{e['method']}": results / "tiny" / e["cell"] for e in index["entries"]}


def taken(results: Path) -> dict[str, str]:
    """Which cells were written down from which."""
    places = {folder.name: name for name, folder in folders(results).items()}
    found = {name: read_manifest(folder).get("computed_as") for name, folder in folders(results).items()}
    return {name: places[of] for name, of in found.items() if of}


@pytest.fixture(scope="module")
def both(tmp_path_factory, own_cache):
    """A suite that was run as usual, and once more with every cell computed: (folder, what the first run printed)."""
    folder = tmp_path_factory.mktemp("twins")
    suite(folder)
    done = run(cwd=folder)
    run("--every-cell", "--results", "each", cwd=folder)
    return folder, done


def test_cells_equal_in_all_that_matters_are_computed_once(both):
    folder, done = both
    assert taken(folder / "r") == {
        "drawn/alllarge": "small/alllarge",
        "drawn/head_only": "small/head_only",
        "whole/head_only": "small/head_only",
    }
    assert taken(folder / "each") == {}
    assert f"{ALL - AS_OTHERS} to run, {AS_OTHERS} equal to others" in done.stdout
    assert "drawn · alllarge · seed 0  as small · alllarge · seed 0" in done.stdout
    assert f"{ALL - AS_OTHERS} cells in" in done.stdout and f"{AS_OTHERS} taken from equal ones" in done.stdout


def test_what_is_taken_is_what_would_have_been_computed(both):
    """All tables, the state and the manifest, but for times, and where it is from."""
    folder, _ = both
    assert content_hash(folder / "r") == content_hash(folder / "each")
    each = folders(folder / "each")
    for name, place in folders(folder / "r").items():
        manifest, own = read_manifest(place), read_manifest(each[name])
        assert manifest["files"].keys() == own["files"].keys() and not damage(place, manifest)
        for state in ("state.json", "state.safetensors"):
            assert (place / state).read_bytes() == (each[name] / state).read_bytes()
        assert manifest["config"] == own["config"] and manifest["id"] == own["id"]
    drawn = [row["capacity"] for row in read_rows(folders(folder / "r")["drawn/alllarge"], "rounds")]
    assert set(drawn) == {1, 2} and drawn != [2, 1] * 3


def test_times_are_those_of_the_cell_that_was_computed(both):
    folder, _ = both
    there = folders(folder / "r")
    one, other = (read_manifest(there[name]) for name in ("small/head_only", "whole/head_only"))
    assert all(one[name] == other[name] for name in ("seconds", "started", "machine"))
    assert other["computed_as"] == there["small/head_only"].name


def test_a_later_run_takes_from_what_is_there_and_repairs_what_is_damaged(tmp_path, both):
    folder, _ = both
    suite(tmp_path)
    shutil.copytree(folder / "r", tmp_path / "r")
    there = folders(tmp_path / "r")
    shutil.rmtree(there["drawn/alllarge"])
    (there["whole/head_only"] / "rounds.parquet").write_bytes(b"torn")
    before = {
        name: read_manifest(there[name])["started"]
        for name in ("drawn/alllarge", "small/alllarge")
        if there[name].exists()
    }
    done = run("--scenario", "[dw]*", cwd=tmp_path)
    assert "0 to run, 2 equal to others" in done.stdout
    assert taken(tmp_path / "r") == taken(folder / "r")
    assert content_hash(tmp_path / "r") == content_hash(folder / "r")
    assert read_manifest(there["small/alllarge"])["started"] == before["small/alllarge"]


def test_what_is_not_whole_is_not_taken_and_the_cell_is_computed(tmp_path, both):
    folder, _ = both
    suite(tmp_path)
    shutil.copytree(folder / "r", tmp_path / "r")
    there = folders(tmp_path / "r")
    for name in ("drawn/head_only", "whole/head_only"):
        shutil.rmtree(there[name])
    (there["small/head_only"] / "state.json").unlink()  # which a result may be without
    run("--scenario", "[dw]*", cwd=tmp_path)
    assert taken(tmp_path / "r") == {"drawn/alllarge": "small/alllarge", "whole/head_only": "drawn/head_only"}
    assert content_hash(tmp_path / "r") == content_hash(folder / "r")


def test_force_computes_one_of_them_anew(tmp_path, both):
    folder, _ = both
    suite(tmp_path, "head_only")
    shutil.copytree(folder / "r", tmp_path / "r")
    cells = [place / "manifest.json" for name, place in folders(tmp_path / "r").items() if "head" in name]
    before = [cell.stat().st_mtime_ns for cell in cells]
    ran = run("--force", "--json", cwd=tmp_path)
    assert json.loads(ran.stdout)["ran"] == 1 and json.loads(ran.stdout)["twins"] == 2
    assert all(cell.stat().st_mtime_ns > then for cell, then in zip(cells, before, strict=True))
    assert len({read_manifest(cell.parent)["seconds"] for cell in cells}) == 1


def test_one_that_was_interrupted_while_it_was_written_down_is_written_anew(tmp_path, both, monkeypatch):
    folder, _ = both
    path = suite(tmp_path)
    shutil.copytree(folder / "r", tmp_path / "r")
    place = folders(tmp_path / "r")["whole/head_only"]
    shutil.rmtree(place)

    def stop(*given):
        raise KeyboardInterrupt

    options = {"plugins": [str(TINY)], "results": str(tmp_path / "r"), "scenarios": ["whole"]}
    with monkeypatch.context() as patch:
        patch.setattr(taking, "described", stop)
        with pytest.raises(KeyboardInterrupt):
            run_suite(path, **options)
    assert read_manifest(place)["status"] == "running" and (place / "rounds.parquet").is_file()
    run_suite(path, **options)
    assert content_hash(tmp_path / "r") == content_hash(folder / "r")


def test_where_the_first_fails_the_next_is_computed(tmp_path, both):
    """Of three equal ones that fail, each has its own failure, as if there were no others."""
    folder, _ = both
    mine = tmp_path / "mine.py"
    mine.write_text(FAILS)
    suite(tmp_path, "fails")
    done = run("--plugin", mine, "--set", f"methods.fails.until={tmp_path / 'now'}", "--max-failures", 2, cwd=tmp_path)
    assert done.exit_code == 1 and "2 cells failed" in done.stdout
    (tmp_path / "now").touch()
    run("--plugin", mine, "--set", f"methods.fails.until={tmp_path / 'now'}", "--retry-failed", cwd=tmp_path)
    assert len(taken(tmp_path / "r")) == 2


FAILS = """
import os
from dataclasses import replace
from fedbench import hookimpl
from fedbench.families.layerwise import layerwise

def fails(setup, until: str = ""):
    method = layerwise(setup, "prefix", adapt=False, depth_of=lambda L_n: setup.backbone.num_layers)
    def round(state, t, cohort, generator):
        if not os.path.exists(until):
            raise RuntimeError("it broke")
        return method.round(state, t, cohort, generator)
    return replace(method, round=round)

@hookimpl
def fedbench_register_methods(register):
    register("fails", fails, ignores=["capacities", "adapter"])
"""


def test_a_stranger_that_says_nothing_is_computed_as_ever(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(FAILS.replace(', ignores=["capacities", "adapter"]', ""))
    suite(tmp_path, "fails")
    (tmp_path / "now").touch()
    run("--plugin", mine, "--set", f"methods.fails.until={tmp_path / 'now'}", cwd=tmp_path)
    assert taken(tmp_path / "r") == {}


def test_trackers_are_told_of_what_is_taken_as_of_what_is_computed(tmp_path, both):
    folder, _ = both
    suite(tmp_path, "head_only")
    shutil.copytree(folder / "r", tmp_path / "r")
    shutil.rmtree(folders(tmp_path / "r")["whole/head_only"])
    plugin = tmp_path / "tiny_plugin.py"
    plugin.write_text(TINY.read_text())
    (tmp_path / "notes.txt").touch()
    fedbench("run", "tiny.yaml", "--plugin", plugin, "--results", "r", cwd=tmp_path)
    told = (tmp_path / "notes.txt").read_text().splitlines()
    assert told[1:-1] == [
        "cell_started head_only",
        *(f"round_finished {t} 2" for t in (1, 2, 3)),
        "cell_finished finished 6",
    ]


def test_a_plan_says_whose_copies_cells_are_and_counts_them_once(tmp_path, both):
    folder, _ = both
    suite(tmp_path)
    given = ("plan", "tiny.yaml", "--plugin", TINY, "--results")
    rows = json.loads(fedbench(*given, "new", "--json", cwd=tmp_path).stdout)["cells"]
    named = {row["id"]: "/".join(row["names"][0][:2]) for row in rows}
    assert {named[row["id"]]: named[row["as"]] for row in rows if "as" in row} == taken(folder / "r")
    told = fedbench(*given, "new", cwd=tmp_path).stdout
    flat = " ".join(told.split())
    images = sum(row["images"] for row in rows if "as" not in row)
    assert f"tiny: {ALL} cells, {AS_OTHERS} of them equal to another; in all {images:,} training images" in flat
    assert "as small · head_only" in told and "as ... equal in all that matters" in flat
    assert "finished, as small · head_only" in fedbench(*given, folder / "r", cwd=tmp_path).stdout
    assert " as " not in fedbench(*given, folder / "each", cwd=tmp_path).stdout  # each was computed


def test_candidates_of_a_tuning_are_taken_rung_by_rung(tmp_path, both):
    folder, _ = both
    tune = "tune:\n  trials: 2\n  space: {train.optimizer.lr: {log: [0.001, 0.1]}}\n  halving: [0.3]\n"
    changes = {"rounds: 2": "rounds: 3", "suite: tiny": f"suite: tiny\nseeds: [1]\n{tune}"}
    evaluated = "  capacities: [2, 1]\n  evaluation: {every: 1, validation: 0.25}\n"
    changes |= {"  capacities: [2, 1]\n": evaluated, "data: dots": "data: {name: dots, per_class: 8}"}
    changes["scenarios:\n  small: {}\n"] = SCENARIOS
    write_suite(tmp_path, "head_only", changes)
    done = json.loads(run("--json", cwd=tmp_path).stdout)
    assert (done["ran"], done["twins"]) == (2 + 1, 4 + 2)  # candidates, and reports, of three scenarios
    assert done["counts"] == {"halved": 3, "finished": 3 + 3}
    run("--every-cell", "--results", "each", cwd=tmp_path)
    assert content_hash(tmp_path / "r") == content_hash(tmp_path / "each")
