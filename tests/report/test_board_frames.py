"""fedbench/report/views/leaderboard.py: leaderboards as frames, and what is said around them."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas
import pytest
from boards import board, cells, rendered, row, shown, write
from factories import eval_rows, round_row, write_cell

from fedbench.report.frames import records
from fedbench.report.style import to_html
from fedbench.report.views.leaderboard import BOARD, leaderboard
from fedbench.results import write_rows

NOISE = (0.0, 0.006, -0.004)


def seeds(level, spread=1.0):
    return [(level + spread * e, level - spread * e / 2) for e in NOISE]


def test_a_frame_says_what_it_is_of(tmp_path):
    for method in ("fedra", "depthfl", "allsmall"):
        write(tmp_path / "s", method, *seeds(0.5 + len(method) / 100, len(method)))
    found = leaderboard([board(tmp_path)])
    assert isinstance(found, pandas.DataFrame)
    assert found.attrs["metric"] == "accuracy" and found.attrs["round"] == "final"
    assert found.attrs["correction"] == "Benjamini-Hochberg over the 3 pairs of a leaderboard"
    assert found.attrs["caption"] and list(found.columns[: len(BOARD)]) == list(BOARD)
    html = to_html(found)
    assert "<caption>accuracy, % · round 12" in html and "fedra" in html and "<b>" in html


def test_csv_has_a_row_for_each_method_with_its_domains(tmp_path):
    write(tmp_path / "s", "fedra", (0.75, 0.25), (0.25, 0.25))
    write_cell(tmp_path / "s", "exclusive", status="not_applicable")
    first, second = csv.DictReader(io.StringIO(rendered([board(tmp_path)], "csv")))
    place = dict(suite="s", scenario="mixed", variant="", backbone="micro_vit", dataset="strokes6", profile="paper")
    std = np.std([0.75, 0.25], ddof=1)
    told = dict(method="fedra", role="method", mean="0.375", std=str(float(std / 2)), n_seeds="2", round="12")
    domains = dict(a="0.5", b="0.25", worst="0.25", ci_low="", group="")
    assert first.items() >= (place | told | domains).items()
    assert (second["status"], second["mean"], second["n_seeds"]) == ("not_applicable", "", "0")


def test_json_says_what_the_frame_says_and_has_no_nan(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write(tmp_path / "s", "allsmall", (float("nan"), 0.6))
    write_cell(tmp_path / "s", "depthfl", status="failed", reason="boom")
    found = json.loads(rendered([board(tmp_path)], "json"))
    assert (found["metric"], found["round"], found["split"]) == ("accuracy", "final", "test")
    assert found["tables"][0]["notes"] == ["depthfl: failed: boom"]
    assert found["tables"][0]["scenario"] == "mixed"
    rows = {one["method"]: one for one in found["rows"]}
    assert rows["fedra"]["mean"] == pytest.approx(0.7) and rows["fedra"]["std"] is None
    assert rows["allsmall"]["mean"] is None and rows["allsmall"]["a"] is None and rows["depthfl"]["status"] == "failed"


def test_a_ceiling_comes_first_and_apart_then_the_best_mean(tmp_path):
    rows = eval_rows({12: {"a": 0.9, "b": 0.9}}, "accuracy/last") + eval_rows({12: {"a": 0.8, "b": 0.8}})
    write_cell(tmp_path / "s", "allsmall", status="failed", reason="boom")
    write(tmp_path / "s", "fedra", (0.7, 0.6))
    write(tmp_path / "s", "alllarge", (0.75, 0.75))
    write_cell(tmp_path / "s", "depthfl", evaluation=rows)
    found = leaderboard([board(tmp_path)])
    assert found["method"].tolist() == ["alllarge", "depthfl", "depthfl/last", "fedra", "allsmall"]
    assert found["role"][:2].tolist() == ["ceiling", "method"]
    lines = shown([board(tmp_path)], 200).splitlines()
    ceiling = next(i for i, line in enumerate(lines) if line.startswith("alllarge"))
    assert "ceiling" in lines[ceiling] and not lines[ceiling + 1].strip() and lines[ceiling + 2].startswith("depthfl")


def test_the_best_mean_alone_is_bold(tmp_path):
    """Not every method that is not significantly worse: that would honour the least stable one."""
    write(tmp_path / "s", "fedra", *seeds(0.80))
    write(tmp_path / "s", "flexlora", (0.99, 0.99), (0.2, 0.2), (0.99, 0.99))
    write(tmp_path / "s", "alllarge", *seeds(0.95))
    found = board(tmp_path)
    assert row(found, "flexlora").group == row(found, "fedra").group == "a"
    markdown = rendered([found], "markdown")
    assert markdown.count("**") == 2 and "| **79.9** ±0.1" not in markdown and "| fedra |  | **80." in markdown
    assert rendered([found], "latex").count(r"\textbf{") == 1


def test_intervals_of_fractions_end_at_their_limits(tmp_path):
    write(tmp_path / "s", "flexlora", (0.99, 0.99), (0.99, 0.99), (0.99, 0.99), (0.2, 0.2), (0.98, 0.98))
    write(tmp_path / "s", "fedra", (0.0, 0.0), (0.3, 0.3), (0.3, 0.3), (0.3, 0.3), (0.01, 0.01))
    found = {row["method"]: row for row in records(leaderboard([board(tmp_path)]))}
    assert found["flexlora"]["ci_high"] == 1.0 and found["fedra"]["ci_low"] == 0.0
    assert cells(board(tmp_path))["95 % interval"][0].endswith("–100.0")
    for seed in range(3):
        write_cell(tmp_path / "t", "fedra", seed, evaluation=eval_rows({1: {"a": 5.0 * (1 + seed)}}, "loss"))
    loss = leaderboard([board(tmp_path / "t", metric="loss")])
    assert loss["ci_high"][0] > 20, "a loss has no limit"


def collapsing(folder, method, *runs, answers=()):
    """Cells of a method, of one domain: by seed the scores after rounds 4, 8 and 12; answers: by seed the share of the
    commonest after the last."""
    for seed, scores in enumerate(runs):
        rows = eval_rows({4 * (i + 1): {"a": score} for i, score in enumerate(scores)})
        said = {"round": 12, "split": "test", "output": "", "examples": 9}
        cell = write_cell(folder, method, seed, evaluation=rows)
        if answers:
            write_rows(cell, "answers", [{**said, "top_share": answers[seed]}])


def test_a_board_says_which_seeds_collapsed_and_how(tmp_path):
    steady, fallen = (0.5, 0.7, 0.8), (0.5, 0.7, 0.2)
    collapsing(tmp_path / "s", "fedra", steady, steady, steady, answers=(0.2, 0.3, 0.2))
    collapsing(tmp_path / "s", "flexlora", fallen, steady, (0.2, 0.2, 0.2), answers=(0.4, 0.2, 1.0))
    collapsing(tmp_path / "s", "depthfl", fallen, (0.6, 0.3, 0.3), steady)  # nobody knows what these answered
    found = leaderboard([board(tmp_path)])
    assert dict(zip(found["method"], found["collapsed"], strict=True)) == {"fedra": 0, "flexlora": 2, "depthfl": 2}
    assert cells(board(tmp_path))["collapsed"] == ["", "2 of 3", "2 of 3"]
    (note,) = [note for note in found.attrs["pages"][0]["notes"] if "collapsed" in note]
    assert "flexlora: 1 of 3 seeds predicts one class, 1 fell after round 8" in note
    assert "depthfl: 2 of 3 seeds fell after round 4 or 8" in note and "fedra" not in note
    assert any(line.startswith("collapsed: ") for line in found.attrs["legend"])


def test_a_board_on_which_nothing_collapsed_has_no_column_of_it(tmp_path):
    collapsing(tmp_path / "s", "fedra", (0.5, 0.7, 0.8), (0.5, 0.9, 0.81))
    found = leaderboard([board(tmp_path)])
    assert found["collapsed"].tolist() == [0] and "collapsed" not in cells(board(tmp_path))
    assert not any("collapsed" in line for line in [*found.attrs["pages"][0]["notes"], *found.attrs["legend"]])


def test_memory_is_that_of_the_weakest_the_median_and_the_largest_client(tmp_path):
    rounds = [
        round_row(t, n, [0] * held, workspace_bytes=1_000_000 * t) for t in (1, 2) for n, held in enumerate((1, 2, 4))
    ]
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 0.5}}), rounds=rounds)
    (found,) = records(leaderboard([board(tmp_path)]))
    assert (found["memory_min"], found["memory_median"], found["memory_max"]) == (12e6, 22e6, 42e6)
    assert cells(board(tmp_path))["memory min/med/max"] == ["12.0/22.0/42.0 MB"]


def test_seconds_and_coverage_are_left_to_the_costs(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"a": 0.5}}))
    titles = cells(board(tmp_path))
    assert "down + up" in titles and not {"seconds", "Γ*", "cover"} & titles.keys()


def test_a_domain_may_be_called_like_a_column(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({2: {"mean": 0.5, "method": 0.7}}))
    found = leaderboard([board(tmp_path)])
    assert found["mean (domain)"].tolist() == [0.5] and found["mean"][0] == pytest.approx(0.6)
