"""fedbench compare BEFORE AFTER: two results folders, name by name."""

from __future__ import annotations

import csv
import io
import json

import factories
import pytest
from command import fedbench
from factories import eval_rows, write_cell
from sides import change, flat, level, rounds, twice, write

from fedbench.report.views.changes import CSV_COLUMNS
from fedbench.results import read_manifest, write_manifest, write_rows


def starting(text, name):
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def folder_of(side, method, seed=0):
    return factories.cell_of(side / "s", method, seed)


def edit(cell, **changes):
    write_manifest(cell, (read_manifest(cell) or {}) | changes)


def test_equal_results_are_counted_and_time_is_no_difference(tmp_path):
    level(tmp_path / "before", "fedra", 0.7, seeds=2)
    twice(tmp_path)
    cell = folder_of(tmp_path / "after", "fedra")
    write_rows(cell, "rounds", rounds(seconds=0.5))
    edit(cell, seconds=60.0, machine={"cpu": "any"})
    done = change(tmp_path)
    assert done.exit_code == 0 and "2 names in both: 2 equal" in done.output
    assert "versions, machines, data and configurations are the same" in done.output


def test_a_loss_that_is_no_number_is_the_same_on_both_sides(tmp_path):
    write(tmp_path / "before", "fedra", 0.5, rounds=rounds(loss=float("nan")))
    twice(tmp_path)
    write_rows(folder_of(tmp_path / "after", "fedra"), "rounds", rounds(loss=float("nan"), seconds=9.0))
    assert "1 name in both: 1 equal" in change(tmp_path).output


def test_names_with_other_scores_are_listed_the_largest_difference_first(tmp_path):
    level(tmp_path / "before", "fedra", 0.7)
    twice(tmp_path)
    for seed, by in ((1, 0.01), (2, -0.05)):
        cell = folder_of(tmp_path / "after", "fedra", seed)
        write_rows(cell, "eval", eval_rows({12: {"a": 0.7 + by, "b": 0.7}}))
    write_rows(folder_of(tmp_path / "after", "fedra", 3), "rounds", rounds(bytes_up=2_000_000))
    done = change(tmp_path, columns=90)
    assert max(map(len, done.output.splitlines())) <= 90 and done.exit_code == 1
    assert "4 names in both: 1 equal, 1 within tolerance under one id, 2 different under one id" in done.output
    listed = [line.split() for line in done.output.splitlines() if line.startswith("fedra · seed")]
    assert [(words[3], words[4], words[-1]) for words in listed] == [
        ("2", "different", "eval"),
        ("1", "different", "eval"),
        ("3", "within", "rounds"),
    ]
    # the largest of 0.65 - 0.696 and 0.7 - 0.696, and of 0.71 - 0.704 and 0.7 - 0.704
    assert [words[5:9] for words in listed[:2]] == [["69.6", "67.5", "-2.1", "+4.6"], ["70.4", "70.5", "+0.1", "+0.6"]]
    # the seeds that are equal count, too: +0, +0.1, -2.1, +0
    assert starting(done.output, "fedra")[:5] == ["fedra", "4", "70.0", "69.5", "-0.5"]


@pytest.mark.parametrize(("tolerance", "code", "said"), [("4.5", 1, "1 different"), ("4.6", 0, "2 within tolerance")])
def test_one_tolerance_says_what_is_different(tmp_path, tolerance, code, said):
    level(tmp_path / "before", "fedra", 0.7, seeds=3)
    twice(tmp_path)
    for seed, by in ((1, 0.01), (2, -0.05)):
        cell = folder_of(tmp_path / "after", "fedra", seed)
        write_rows(cell, "eval", eval_rows({12: {"a": 0.7 + by, "b": 0.7}}))
    done = change(tmp_path, "--equivalent", tolerance)
    assert done.exit_code == code and said in done.output


def test_an_earlier_round_and_another_metric_count_too(tmp_path):
    values = {6: {"a": 0.5}, 12: {"a": 0.6}}
    rows = [*eval_rows(values), *eval_rows(values, "loss")]
    write_cell(tmp_path / "before" / "s", "fedra", evaluation=rows)
    for side, metric in (("accuracy", "accuracy"), ("loss", "loss")):
        changed = [row | {"value": 0.9} if (row["round"], row["metric"]) == (6, metric) else row for row in rows]
        write_cell(tmp_path / side / "s", "fedra", evaluation=changed)
        done = fedbench("compare", "changes", "before", side, cwd=tmp_path, columns=100)
        line = starting(done.output, "fedra")
        assert done.exit_code == 1 and line[5:8] == ["60.0", "60.0", "+0.0"]
        assert ("loss differs by up to 0.4" in done.output) == (side == "loss")
        assert line[8] == ("+40.0" if side == "accuracy" else "+0.0")


def test_scores_of_other_rounds_are_different_whatever_the_tolerance(tmp_path):
    for side, t in (("before", 6), ("after", 9)):
        write_cell(tmp_path / side / "s", "fedra", evaluation=eval_rows({t: {"a": 0.5}, 12: {"a": 0.6}}))
    done = change(tmp_path, "--equivalent", "100")
    assert done.exit_code == 1 and "other rounds, domains or metrics were scored" in flat(done.output)


def test_another_version_makes_other_ids_and_settings_are_told(tmp_path, monkeypatch):
    for side, fedra, lr in (("before", 0.7, 0.1), ("after", 0.68, 0.2)):
        versions = {"torch": "2.9" if side == "before" else "3.0", "timm": "1"}
        monkeypatch.setitem(factories.AS_RUN, "versions", versions)
        level(tmp_path / side, "fedra", fedra, spread=lr * 10, train__lr=lr)
    done = change(tmp_path, columns=90)
    assert done.exit_code == 1 and "4 different under another id" in done.output
    assert starting(done.output, "versions.torch") == ["versions.torch", "2.9", "3.0", "4", "of", "4"]
    assert starting(done.output, "config.train.lr")[1:3] == ["0.1", "0.2"] and "timm" not in done.output
    assert starting(done.output, "fedra")[4] == "-1.9"


def test_a_metric_that_no_result_has_is_refused(tmp_path):
    for side, loss in (("before", 0.5), ("after", 0.8)):
        rows = eval_rows({1: {"a": loss}}, "loss")
        write_cell(tmp_path / side / "s", "fedra", evaluation=rows, rounds=rounds(), train__lr=loss)
    assert change(tmp_path, "--metric", "loss").exit_code == 1
    refused = change(tmp_path)
    assert refused.exit_code == 2 and "no metric 'accuracy' in these results" in refused.output


def test_what_failed_or_is_in_one_folder_alone_is_named(tmp_path):
    for side, other in (("before", "depthfl"), ("after", "exclusive")):
        level(tmp_path / side, other, 0.5, seeds=2)
        level(tmp_path / side, "allsmall", 0.5, seeds=1)
    write(tmp_path / "before", "fedra", 0.5)
    write_cell(tmp_path / "after" / "s", "fedra", status="failed", reason="out of memory")
    done = change(tmp_path)
    told = flat(done.output)
    assert done.exit_code == 1 and "2 names in both: 1 equal, 1 lost" in told
    assert "finished before, no result now: fedra · seed 0 (failed: out of memory)" in told
    assert "2 names only in before: depthfl (2 seeds)" in told and "2 names only in after: exclusive (2 seeds)" in told
    assert change(tmp_path, "--method", "allsmall").exit_code == 0
    gained = fedbench("compare", "changes", "after", "before", cwd=tmp_path)
    assert "no result before, finished now: fedra" in flat(gained.output) and gained.exit_code == 0


def test_a_torn_table_is_told_and_gives_no_difference(tmp_path):
    level(tmp_path / "before", "fedra", 0.7, seeds=2)
    twice(tmp_path)
    (folder_of(tmp_path / "after", "fedra", 1) / "eval.parquet").write_bytes(b"PAR1")
    done = change(tmp_path)
    assert done.exit_code == 1 and "eval.parquet" in done.output
    assert "1 equal" in done.output and "fedra · seed 1" not in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("changes", "before"), "takes two PATHs"),
        (("changes", "before", "other"), "share no name"),
        (("changes", "before", "after", "--at", "bytes"), "No such option"),
        (("changes", "before", "after", "--fail-on", "worse"), "--fail-on is gone: the exit code is 1"),
        (("changes", "before", "after", "--baseline", "fedra"), "No such option"),
        (("before", "after", "--fail-on", "worse"), "No such option"),
    ],
)
def test_what_means_nothing_is_refused(tmp_path, words, told):
    for side in ("before", "after", "other"):
        write(tmp_path / side, "depthfl" if side == "other" else "fedra", 0.5)
    done = fedbench("compare", *words, cwd=tmp_path)
    assert done.exit_code == 2 and told in done.output


def test_folders_without_a_common_name_are_one_pool_as_ever(tmp_path):
    for side, method in (("before", "fedra"), ("after", "depthfl"), ("third", "allsmall")):
        write(tmp_path / side, method, 0.5)
    for words in (("before", "after"), ("before", "before/s"), ("before", "after", "third")):
        told = fedbench("compare", *words, cwd=tmp_path).output
        assert told.count("round 12") == len({*words} - {"before/s"}) and "names in both" not in told


def test_two_folders_with_common_names_are_set_against_each_other_unless_boards_are_asked_for(tmp_path):
    level(tmp_path / "before", "fedra", 0.7, seeds=1)
    twice(tmp_path)

    def compare(*words):
        return fedbench("compare", *words, cwd=tmp_path, columns=100)

    two = ("before", "after")
    assert "1 name in both" in compare(*two).output and compare(*two).output == change(tmp_path).output
    assert compare("boards", *two).output.count("round 12") == 2
    assert compare(*two, "--at", "bytes").output.count("1 seed") >= 2  # a budget is one of each leaderboard
    rows = list(csv.DictReader(io.StringIO(compare(*two, "--format", "csv").stdout)))
    assert {row["suite"] for row in rows} == {"s (before/s)", "s (after/s)"}  # what programs read is what it was


def test_csv_and_json(tmp_path):
    level(tmp_path / "before", "fedra", 0.7)
    level(tmp_path / "after", "fedra", 0.6, spread=2, train__lr=0.2)
    text = change(tmp_path, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == list(CSV_COLUMNS)
    cell = next(row for row in rows if (row["seed"], row["measure"]) == ("1", "accuracy"))
    assert (cell["change"], cell["same_id"], cell["differs_in"]) == ("different", "False", "eval")
    assert float(cell["difference"]) == pytest.approx(-0.096) and float(cell["largest"]) == pytest.approx(0.096)
    found = json.loads(change(tmp_path, "--format", "json").stdout)
    assert found["settings"] == [{"what": "config.train.lr", "before": None, "after": "0.2", "cells": 4}]
    assert found["broken"] is True and found["rows"][0]["after"] == pytest.approx(0.6)
