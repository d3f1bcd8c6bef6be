"""Results of version 1, a folder with six files for each cell, are read, packed and migrated."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
from command import TINY, fedbench, loosen, run
from command import write_suite as write_yaml
from factories import eval_rows, layer_row, write_cell
from pyarrow import parquet
from samples import VALUES

from fedbench.disk import hash_of_json
from fedbench.registry.registry import Registry
from fedbench.results import content_hash, load, merge_index, read_index
from fedbench.results.identity import identity
from fedbench.results.index import read_expected
from fedbench.results.merge import merge
from fedbench.results.pack import pack
from fedbench.results.store import cell_folders
from fedbench.results.tables import VERSION_KEY
from fedbench.results.tuning import Search, read_searches

TOP = Path(__file__).parents[2]
NUMBER = dict(
    scenario="mixed", variant="", dataset="d", backbone="b", method="fedra", metric="average", value_percent=50
)
SEARCH = {"space": {"a": {}}, "candidates": [{"a": 1}], "seeds": [7], "metric": "accuracy", "halving": []}


def sealed(value: dict) -> str:
    return json.dumps({**value, "sha256": hash_of_json(value)}, indent=1)


def as_version_1(suite: Path) -> None:
    """A suite of loose cells as the version before wrote it."""
    index, places = read_index(suite), cell_folders(suite)
    entries = []
    for entry in index.entries:
        place = places(entry.cell)
        if place.parent != suite:
            place = place.rename(suite / f"{entry.scenario}-{entry.method}-{entry.seed}-{entry.cell}")
        told = {**entry.facts, "cell": place.name}
        entries.append(told | {"mark": hash_of_json([index.suite, told])[:12]})
    beside = {"tuning.json": {"searches": [{**SEARCH, "contests": [["mixed", "", "fedra"]]}]}}
    beside |= {"expected.json": {"expected": [NUMBER]}, "index.json": {"entries": entries}}
    for name, value in beside.items():
        (suite / name).write_text(sealed({"result_version": 1, "suite": index.suite, **value}))
    for file in suite.glob("*/manifest.json"):
        value = json.loads(file.read_text())
        del value["sha256"]
        file.write_text(sealed({**value, "result_version": 1}))
    for file in suite.glob("*/*.parquet"):
        table = parquet.read_table(file)
        parquet.write_table(table.replace_schema_metadata({VERSION_KEY: b"1"}), file)


@pytest.fixture
def older(tmp_path):
    suite = tmp_path / "r" / "s"
    for seed in (0, 1):
        write_cell(suite, "fedra", seed, evaluation=eval_rows(VALUES), layers=[layer_row(1, 0)])
    write_cell(suite, "exclusive", status="not_applicable", reason="nobody")
    now = load([suite])
    as_version_1(suite)
    return suite, now


def test_it_is_read_as_it_was_written(older):
    suite, now = older
    found = load([suite])
    assert [(r.entry, r.status) for r in found] == [(r.entry, r.status) for r in now]
    assert [r.eval for r in found[:2]] == [r.eval for r in now[:2]]
    assert read_searches(suite) == {("mixed", "", "fedra"): Search(**SEARCH)}
    assert [one.value_percent for one in read_expected(suite)] == [50]


def test_what_was_changed_in_it_is_found(older):
    suite, _ = older
    for file in (suite / "index.json", next(suite.glob("*/manifest.json"))):
        whole = file.read_text()
        file.write_text(whole.replace('"seed": 0', '"seed": 5'))
        done = fedbench("compare", suite, cwd=suite)
        assert done.exit_code == 1 and f"{file}: checksum mismatch" in done.stderr
        file.write_text(whole)


def test_it_is_packed_and_merged_to_the_same(older, tmp_path):
    suite, _ = older
    hashed = content_hash(suite)
    merge([suite], tmp_path / "merged")
    assert pack(suite) == 3
    assert content_hash(suite) == hashed == content_hash(tmp_path / "merged")
    assert sorted(file.name.partition("-")[0] for file in suite.iterdir() if file.name[0] != ".") == [
        *("cells", "eval", "index.json", "layers", "rounds")
    ]
    assert read_searches(suite) == read_searches(tmp_path / "merged/s") == {("mixed", "", "fedra"): Search(**SEARCH)}


def migration():
    spec = importlib.util.spec_from_file_location("migrate", TOP / "results/migrate.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules["migrate"] = found
    spec.loader.exec_module(found)
    return found


TIMES_AND_MEMORY = ("seconds", "memory_min", "memory_median", "memory_max")  # a cell that was merged has another's


def shown(folder: Path) -> list:
    """Scores and verdicts of all leaderboards, and what is said of every two methods."""
    found = []
    for view in ((), ("pairs",)):
        rows = json.loads(fedbench("compare", *view, folder, "--format", "json", cwd=folder).stdout)["rows"]
        found.append([{key: value for key, value in row.items() if key not in TIMES_AND_MEMORY} for row in rows])
    return found


def test_a_sample_of_the_reference_results_has_the_same_scores_and_verdicts_when_it_is_migrated(tmp_path):
    """Whichever version lies there now; AllLarge and head_only are one cell for scenarios that differ in depths."""
    place = Path(shutil.copytree(TOP / "results/reference/extreme_hetero", tmp_path / "extreme_hetero"))
    before, names = shown(place), len(read_index(place).entries)
    script = migration()
    first, *rest = script.migrate(place, Registry())
    assert rest == [] and (first.endswith("8 of them equal to another, 52 packed") or "nothing to migrate" in first)
    assert shown(place) == before
    entries = read_index(place).entries
    assert len(entries) == names and len({entry.cell for entry in entries}) == 55
    assert len(list(place.iterdir())) < 15 and not list(place.glob("*-*/"))
    rows = json.loads(fedbench("compare", place, "--format", "json", cwd=place).stdout)["rows"]
    assert len({row["memory_max"] for row in rows if row["method"] == "head_only"}) == 1
    assert script.migrate(place, Registry()) == [f"{place}: nothing to migrate"]


def test_a_migrated_suite_is_not_computed_again(tmp_path):
    """Its ids are those that a run of today gives, and one with a copy of a cell has it once."""
    write_yaml(tmp_path, "head_only", {"  small: {}\n": "  small: {}\n  drawn: {capacities: {uniform: [1, 2]}}\n"})
    run("--quiet", cwd=tmp_path)
    suite = tmp_path / "r" / "tiny"

    loosen(suite)
    as_copies(suite)
    as_version_1(suite)
    (line,) = migration().migrate(suite, Registry([str(TINY)]))
    assert line.endswith("2 cells, 1 of them equal to another, 1 packed")
    assert json.loads(run("--json", cwd=tmp_path).stdout)["ran"] == 0


def as_copies(suite: Path) -> None:
    """One cell for each name, as the version before had it, of which one is a copy."""
    index, places = read_index(suite), cell_folders(suite)
    first = None
    for entry in index.entries:
        place = places(entry.cell)
        value = {k: v for k, v in json.loads((place / "manifest.json").read_text()).items() if k != "sha256"}
        del value["ignored"], value["files"]
        value["config"] |= entry.ignored
        value["id"] = identity(value["config"], value["fingerprints"], value["versions"])
        value |= {"computed_as": first} if first else {}
        own = suite / f"{entry.scenario}-{entry.method}-{entry.seed}-{value['id']}"
        shutil.copytree(place, own)
        (own / "manifest.json").write_text(sealed({**value, "result_version": 1}))
        first = first or own.name
        merge_index(suite, "tiny", [{**entry.facts, "cell": own.name, "ignored": None}])
    shutil.rmtree(suite / "cells")
