"""fedbench/report/summary.py: many leaderboards on a page."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from boards import ROLES, write
from command import fedbench
from factories import round_row, write_cell

from fedbench.commands.run import _close
from fedbench.report.leaderboards import leaderboards
from fedbench.report.ranks import LONG
from fedbench.report.summary import CSV_COLUMNS, FEW, summaries, view
from fedbench.results import load
from fedbench.runs.outcome import Outcome

LEVELS = {"alllarge": 0.9, "fedra": 0.7, "depthfl": 0.6, "allsmall": 0.5}
NOISE = (0.0, 0.006, -0.004)


def scenario(folder, name, levels=LEVELS, seeds=3, **options):
    for method, level in levels.items():
        # fedra and depthfl differ by a noise that is theirs, so that a letter can be shared
        values = [(level + NOISE[s], level - NOISE[s] * len(method)) for s in range(seeds)]
        write(folder / "s", method, *values, scenario=name, rounds=[round_row(12, 0, [0])], **options)


def summary(folder, **options):
    (found,) = summaries(leaderboards(load([folder]), roles=ROLES, **options))
    return found


def starting(text, name):
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def test_means_letters_and_mean_ranks_stand_together(tmp_path):
    scenario(tmp_path, "one")
    scenario(tmp_path, "two", LEVELS | {"fedra": 0.55, "depthfl": 0.552})
    text = fedbench("compare", "s", "--summary", cwd=tmp_path, columns=60).output
    assert max(map(len, text.splitlines())) <= 60
    assert starting(text, "method") == ["method", "mean", "rank", "group", "one", "two"]
    letters = {
        b.place.scenario: {row.label: row.group for row in b.rows} for b in leaderboards(load([tmp_path]), roles=ROLES)
    }
    assert letters["two"]["fedra"] == letters["two"]["depthfl"] == "a"
    found = summary(tmp_path)
    assert {title: {m: row.group for m, row in rows.items()} for title, rows in found.rows.items()} == letters
    shown = starting(text, "fedra")
    assert shown[1] == "1.50" and shown[3:5] == ["69.9", "a"] and shown[-1] == "a"


def test_a_ceiling_is_shown_below_all_others_and_never_ranked(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path, name)
    text = fedbench("compare", "s", "--summary", cwd=tmp_path).output
    assert starting(text, "alllarge") == ["alllarge", "89.8", "89.8"]
    found = summary(tmp_path)
    assert found.methods[-1] == "alllarge" and found.unranked == ["alllarge"] and "alllarge" not in found.mean_ranks


def test_a_missing_cell_is_a_blank_and_its_scenario_gives_no_rank(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path, name)
    scenario(tmp_path, "three", {"fedra": 0.1, "depthfl": 0.6})
    write_cell(tmp_path / "s", "allsmall", scenario="four", status="failed", reason="no memory")
    found = summary(tmp_path)
    assert found.mean_ranks == {"fedra": 1.0, "depthfl": 2.0, "allsmall": 3.0}
    text = " ".join(fedbench("compare", "s", "--summary", cwd=tmp_path).output.split())
    assert "mean rank: over 2 of 4 scenarios, with a score of all 3 ranked methods" in text
    assert "without one: allsmall in 2, fedra in 1, depthfl in 1" in text
    assert "without allsmall 3 are complete" in text and "no memory (four)" in text
    table = view([found]).pages[0].tables[0]
    cells = {column.title: dict(zip(found.methods, column.cells, strict=True)) for column in table.columns}
    assert cells["three"]["allsmall"].text == "" and cells["four"]["allsmall"].text == "failed"


def test_one_complete_scenario_gives_no_mean_rank(tmp_path):
    """A place in one of many scenarios would read as a mean over all."""
    scenario(tmp_path, "one", {"depthfl": 0.5, "fedra": 0.4})
    for name in ("two", "three"):
        scenario(tmp_path, name, {"fedra": 0.9})
    text = fedbench("compare", "s", "--summary", cwd=tmp_path).output
    assert "no mean rank: 1 of 3 scenarios complete" in text and starting(text, "method")[1] == "one"


def test_many_scenarios_go_down_the_page_under_whole_names(tmp_path):
    names = [f"scenario_with_a_name_{i}" for i in range(7)]
    for name in names:
        scenario(tmp_path, name, seeds=1)
    assert max(map(len, names)) > LONG
    text = fedbench("compare", "s", "--summary", cwd=tmp_path, columns=60).output
    assert max(map(len, text.splitlines())) <= 60
    assert [line.split()[0] for line in text.splitlines() if line.startswith("scenario_")][:7] == names
    assert starting(text, "fedra")[-3:] == ["7", "of", "7"]
    # what stands below every leaderboard stands here once
    assert text.count("nothing is concluded about which") == 1


def test_a_scenario_is_called_by_what_tells_it_from_others(tmp_path):
    """A sweep over backbones says them already."""
    for name in ("micro_vit", "micro_mixer"):
        scenario(tmp_path, "one", variant=f"backbone={name}", backbone={"name": name}, seeds=1)
    found = summary(tmp_path)
    assert list(found.boards) == ["micro_vit", "micro_mixer"]


def test_many_leaderboards_are_summed_up_on_a_terminal_alone(tmp_path):
    for i in range(FEW + 1):
        scenario(tmp_path, f"s{i}", {"fedra": 0.5, "depthfl": 0.4}, seeds=1)

    def boards(*words):
        return fedbench("compare", "s", *words, cwd=tmp_path).output

    assert f"A summary of {FEW + 1} leaderboards: --boards" in boards()
    assert boards("--boards").count("accuracy, % · ") == FEW + 1
    for words in (("--scenario", "s[0-7]"), ("--baseline", "fedra")):
        told = boards(*words)
        assert "mean rank" not in told and "\ns0\n" in told
    # what programs read never depends on how much there is
    assert boards("--format", "csv") == boards("--format", "csv", "--boards")
    refused = fedbench("compare", "s", "--summary", "--baseline", "fedra", cwd=tmp_path)
    assert refused.exit_code == 2 and "--pairs" in refused.output


def test_csv_and_json(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path, name)
    scenario(tmp_path, "three", {"fedra": 0.1})
    text = fedbench("compare", "s", "--summary", "--format", "csv", cwd=tmp_path).stdout
    rows = {(r["method"], r["scenario"]): r for r in csv.DictReader(io.StringIO(text))}
    assert text.splitlines()[0] == ",".join(CSV_COLUMNS)
    assert ("depthfl", "three") not in rows and rows["fedra", "three"]["rank"] == ""
    assert (rows["fedra", "two"]["rank"], rows["fedra", "two"]["group"]) == ("1.0", "a")
    assert rows["alllarge", "one"]["rank"] == rows["alllarge", "mean"]["rank"] == ""
    assert (rows["depthfl", "mean"]["rank"], rows["depthfl", "mean"]["complete"]) == ("2.0", "2")
    (found,) = json.loads(fedbench("compare", "s", "--summary", "--format", "json", cwd=tmp_path).stdout)
    assert found["methods"]["allsmall"] == {"ranked": True, "mean_rank": 3.0, "group": "c"}
    assert found["scenarios"]["one"]["methods"]["fedra"]["mean"] == pytest.approx(float(rows["fedra", "one"]["mean"]))
    assert not found["scenarios"]["three"]["complete"] and list(found["scenarios"]["three"]["methods"]) == ["fedra"]


def test_markdown_and_latex_have_the_same_cells(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path, name)
    markdown = fedbench("compare", "s", "--summary", "--format", "markdown", cwd=tmp_path).stdout
    assert re.search(r"\| fedra \| 1.00 \| a \| 69.9 a \| 69.9 a \|", markdown)
    assert "fedra & 1.00 & a & 69.9 a & 69.9 a" in fedbench(
        "compare", "s", "--summary", "--format", "latex", cwd=tmp_path
    ).stdout  # fmt: skip


def test_a_run_of_many_scenarios_ends_with_a_summary_too(tmp_path, capsys):
    for i in range(FEW + 1):
        scenario(tmp_path, f"s{i}", {"fedra": 0.5}, seeds=1)
    _close(Outcome("s", tmp_path / "s", {}, frozenset(), 1.0), ROLES)
    assert f"A summary of {FEW + 1} leaderboards" in " ".join(capsys.readouterr().out.split())
