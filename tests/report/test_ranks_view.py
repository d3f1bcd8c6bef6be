"""fedbench/report/scenarios.py and ranks.py: methods over scenarios."""

from __future__ import annotations

import csv
import io
import json

import pytest
from boards import ROLES, write
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.leaderboards import leaderboards
from fedbench.report.ranks import CSV_COLUMNS, WIDE, view
from fedbench.report.scenarios import standings
from fedbench.results import load

LEVELS = {"alllarge": 0.9, "fedra": 0.7, "depthfl": 0.6, "allsmall": 0.5}


def scenario(folder, name, levels=LEVELS, seeds=1, **options):
    for method, level in levels.items():
        values = [(level + s / 100 * level, level) for s in range(seeds)]
        write(folder / "s", method, *values, scenario=name, **options)


def standing(folder, **options):
    (found,) = standings(leaderboards(load([folder]), roles=ROLES, **options))
    return found


def test_six_scenarios_are_told_apart_by_wilcoxon_with_one_seed(tmp_path):
    for i in range(6):
        scenario(tmp_path, f"s{i}", {m: v + i * v / 50 for m, v in LEVELS.items()})
    found = standing(tmp_path)
    assert found.methods == ["fedra", "depthfl", "allsmall"] and found.wilcoxon
    assert found.mean_ranks == {"fedra": 1.0, "depthfl": 2.0, "allsmall": 3.0}
    assert found.friedman == pytest.approx((12.0, 0.00248), abs=1e-4)
    assert found.cd == pytest.approx(2.3437 * (12 / 36) ** 0.5, abs=1e-3)
    assert {pair.p for pair in found.pairs} == {2 / 2**6}
    assert found.groups == {"fedra": "a", "depthfl": "b", "allsmall": "c"}


def test_few_scenarios_are_told_apart_over_seeds_and_one_seed_concludes_nothing(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path / "many", name, seeds=4)
        scenario(tmp_path / "single", name)
    assert standing(tmp_path / "many").groups == {"fedra": "a", "depthfl": "b", "allsmall": "c"}
    assert standing(tmp_path / "single").groups == {}
    text = fedbench("compare", "single", "--ranks", cwd=tmp_path, columns=200).output
    assert "nothing is concluded about which method is better" in text and "Friedman: chi2(2) = 4.00" in text


def test_an_incomplete_scenario_is_blank_and_named(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path, name, seeds=3)
    scenario(tmp_path, "three", {"fedra": 0.1, "depthfl": 0.6})
    found = standing(tmp_path)
    assert list(found.ranks) == ["one", "two"] and found.left_out == {"three": ["allsmall"]}
    text = fedbench("compare", "s", "--ranks", cwd=tmp_path, columns=60).output
    assert max(map(len, text.splitlines())) <= 60
    assert next(x for x in text.splitlines() if x.startswith("fedra")).split() == ["fedra", "1", "1", "1.00", "a"]
    assert "three: incomplete, no score of allsmall" in text and "2 complete scenarios" in text
    assert "Benavoli et al. 2016" in " ".join(text.split())


def test_one_or_no_complete_scenario(tmp_path):
    scenario(tmp_path, "one", seeds=3)
    assert "nothing is concluded over scenarios" in " ".join(view([standing(tmp_path)]).pages[0].notes)
    write(tmp_path / "s", "festa", (0.1, 0.1), scenario="two")
    found = standing(tmp_path)
    assert not found.ranks and found.cd is None
    assert "--method" in " ".join(view([found]).pages[0].notes)


def test_ties_share_ranks_and_a_low_loss_is_first(tmp_path):
    for name in ("one", "two"):
        for method, value in (("fedra", 0.5), ("depthfl", 0.5), ("allsmall", 0.1)):
            write_cell(tmp_path / "s", method, scenario=name, evaluation=eval_rows({1: {"a": value}}, "loss"))
    found = standing(tmp_path, metric="loss")
    assert found.mean_ranks == {"fedra": 2.5, "depthfl": 2.5, "allsmall": 1.0}


def test_what_sets_scenarios_apart_is_numbered_where_it_is_long(tmp_path):
    for name in ("short", "a scenario with a long name"):
        scenario(tmp_path, name)
    (page,) = view([standing(tmp_path)]).pages
    assert [column.title for column in page.tables[0].columns] == ["method", "1", "2", "mean rank"]
    assert "2: a scenario with a long name" in page.remarks


def test_the_diagram_reaches_as_far_as_the_critical_difference(tmp_path):
    for i in range(8):
        scenario(tmp_path, f"s{i}")
    found = standing(tmp_path)
    column = view([found]).pages[0].tables[1].columns[-1]
    first, second, third = (cell.text for cell in column.cells)
    assert {len(first), len(second), len(third)} == {WIDE}
    assert (first.index("o"), third.index("o")) == (0, WIDE - 1)
    assert first.count("=") == round(found.cd / 2 * (WIDE - 1))


def test_csv_and_json(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path, name, seeds=3)
    rows = list(
        csv.DictReader(io.StringIO(fedbench("compare", "s", "--ranks", "--format", "csv", cwd=tmp_path).stdout))
    )
    assert list(rows[0]) == list(CSV_COLUMNS)
    assert [(r["scenario"], r["rank"], r["group"]) for r in rows[:3]] == [
        *(("one", "1.0", ""), ("two", "1.0", ""), ("mean", "1.0", "a")),
    ]
    assert float(rows[2]["friedman_p"]) == pytest.approx(0.1353, abs=1e-4)
    (found,) = json.loads(fedbench("compare", "s", "--ranks", "--format", "json", cwd=tmp_path).stdout)
    assert found["ranks"]["two"] == {"fedra": 1.0, "depthfl": 2.0, "allsmall": 3.0}
    assert [p["verdict"] for p in found["pairs"]] == ["better"] * 3
    assert [p["p_sign_flip"] for p in found["pairs"]] == [2 / 2**3] * 3
    told = {name: found[name] for name in CSV_COLUMNS[-3:]}  # what CSV has in the row of `mean`
    assert told == {name: float(rows[2][name]) for name in told} and None not in told.values()
