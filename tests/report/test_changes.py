"""fedbench compare BEFORE AFTER: two results folders, cell by cell and method by method."""

from __future__ import annotations

import csv
import io
import json

import factories
import pytest
from command import fedbench
from factories import eval_rows, write_cell
from sides import change, flat, level, rounds, twice, write

from fedbench.report.changes import CSV_COLUMNS
from fedbench.results import read_manifest, write_manifest, write_rows


def starting(text, name):
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def folder_of(side, method, seed=0):
    (found,) = side.glob(f"s/*-{method}-x-s{seed}-*")
    return found


def edit(cell, **changes):
    write_manifest(cell, (read_manifest(cell) or {}) | changes)


def test_equal_results_are_counted_and_time_is_no_difference(tmp_path):
    level(tmp_path / "before", "fedra", 0.7, seeds=2)
    twice(tmp_path)
    cell = folder_of(tmp_path / "after", "fedra")
    write_rows(cell, "rounds", rounds(seconds=0.5))
    edit(cell, seconds=60.0, machine={"cpu": "any"})
    done = change(tmp_path, "--fail-on", "different")
    assert done.exit_code == 0 and "2 names in both: 2 equal" in done.output
    assert "versions, machines, data and configurations are the same" in done.output


def test_a_loss_that_is_no_number_is_the_same_on_both_sides(tmp_path):
    write(tmp_path / "before", "fedra", 0.5, rounds=rounds(loss=float("nan")))
    twice(tmp_path)
    write_rows(folder_of(tmp_path / "after", "fedra"), "rounds", rounds(loss=float("nan"), seconds=9.0))
    assert "1 name in both: 1 equal" in change(tmp_path).output


def test_cells_of_one_id_with_other_results_are_listed_the_largest_first(tmp_path):
    level(tmp_path / "before", "fedra", 0.7)
    twice(tmp_path)
    for seed, by in ((1, 0.01), (2, -0.05)):
        cell = folder_of(tmp_path / "after", "fedra", seed)
        write_rows(cell, "eval", eval_rows({12: {"a": 0.7 + by, "b": 0.7}}))
    write_rows(folder_of(tmp_path / "after", "fedra", 3), "rounds", rounds(bytes_up=2_000_000))
    done = change(tmp_path, columns=80)
    assert max(map(len, done.output.splitlines())) <= 80 and done.exit_code == 0
    assert "4 names in both: 1 equal, 3 different under one id" in done.output
    listed = [line.split() for line in done.output.splitlines() if line.startswith("fedra · seed")]
    assert [(words[4], words[-1]) for words in listed] == [
        ("different", "rounds"),
        ("within", "eval"),
        ("within", "eval"),
    ]
    assert "different: fedra · seed 3: other bytes" in done.output
    assert {words[3]: words[8] for words in listed[1:]} == {"2": "-2.1", "1": "+0.1"}
    # the seed that is equal is paired, too: +0, +0.1, -2.1, +0
    assert starting(done.output, "fedra")[:5] == ["fedra", "4", "70.0", "69.5", "-0.5"]


def test_another_version_makes_other_ids_and_methods_are_set_against_themselves(tmp_path, monkeypatch):
    for side, fedra, depthfl, lr in (("before", 0.7, 0.6, 0.1), ("after", 0.68, 0.6001, 0.2)):
        versions = {"torch": "2.9" if side == "before" else "3.0", "timm": "1"}
        monkeypatch.setitem(factories.AS_RUN, "versions", versions)
        level(tmp_path / side, "fedra", fedra, spread=lr * 10, train__lr=lr)
        level(tmp_path / side, "depthfl", depthfl, spread=lr * 10, train__lr=lr)
    done = change(tmp_path, columns=80)
    assert done.exit_code == 0 and "8 different under another id" in done.output
    assert starting(done.output, "versions.torch") == ["versions.torch", "2.9", "3.0", "8", "of", "8"]
    assert starting(done.output, "config.train.lr")[1:3] == ["0.1", "0.2"] and "timm" not in done.output
    lines = [line.split() for line in done.output.splitlines() if line.startswith(("fedra", "depthfl"))]
    assert [words[0] for words in lines] == ["fedra", "depthfl"]  # what is worse comes first
    assert lines[0][4] == "-1.9" and "worse" in lines[0] and "equal" in lines[1]
    failing = change(tmp_path, "--fail-on", "worse")
    assert failing.exit_code == 1 and "1 worse" in failing.output
    back = fedbench("compare", "changes", "after", "before", "--fail-on", "worse", cwd=tmp_path)
    assert back.exit_code == 0 and "1 better" in back.output


def test_one_seed_is_not_told_but_different(tmp_path):
    level(tmp_path / "before", "fedra", 0.7, seeds=1)
    level(tmp_path / "after", "fedra", 0.1, seeds=1, train__lr=0.2)
    assert change(tmp_path, "--fail-on", "worse").exit_code == 0
    done = change(tmp_path, "--fail-on", "different")
    assert done.exit_code == 1 and "inconclusive" in done.output and "-60.0" in done.output


def test_a_low_loss_is_the_better_one(tmp_path):
    for side, loss in (("before", 0.5), ("after", 0.8)):
        for seed in range(3):
            rows = eval_rows({1: {"a": loss * (1 + seed / 100)}}, "loss")
            write_cell(tmp_path / side / "s", "fedra", seed, evaluation=rows, rounds=rounds(), train__lr=loss)
    assert change(tmp_path, "--metric", "loss", "--fail-on", "worse").exit_code == 1
    refused = change(tmp_path)
    assert refused.exit_code == 2 and "no metric 'accuracy' in these results" in refused.output


def test_what_failed_or_is_in_one_folder_alone_is_named(tmp_path):
    for side, other in (("before", "depthfl"), ("after", "exclusive")):
        level(tmp_path / side, other, 0.5, seeds=2)
        level(tmp_path / side, "allsmall", 0.5, seeds=1)
    write(tmp_path / "before", "fedra", 0.5)
    write_cell(tmp_path / "after" / "s", "fedra", status="failed", reason="out of memory")
    done = change(tmp_path, "--fail-on", "worse")
    told = flat(done.output)
    assert done.exit_code == 1 and "2 names in both: 1 equal, 1 lost" in told
    assert "finished before, no result now: fedra · seed 0 (failed: out of memory)" in told
    assert "2 names only in before: depthfl (2 seeds)" in told and "2 names only in after: exclusive (2 seeds)" in told
    assert change(tmp_path, "--method", "allsmall", "--fail-on", "different").exit_code == 0
    gained = fedbench("compare", "after", "before", cwd=tmp_path).output
    assert "no result before, finished now: fedra" in flat(gained)


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
        (("changes", "before", "after", "--at", "bytes"), "same round of both folders"),
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
    assert float(cell["difference"]) == pytest.approx(-0.096)
    assert (rows[-1]["seed"], rows[-1]["verdict"], rows[-1]["n_seeds"]) == ("", "worse", "4")
    found = json.loads(change(tmp_path, "--format", "json").stdout)
    assert found["settings"] == [{"what": "config.train.lr", "before": None, "after": "0.2", "cells": 4}]
    assert found["worse"] == ["fedra"] and found["rows"][0]["after"] == pytest.approx(0.6)
    assert found["rows"][-1]["verdict"] == "worse"
