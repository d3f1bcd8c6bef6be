"""fedbench/report/selection/: lines and columns that are wanted, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fedbench
from factories import eval_rows, write_cell

SCORES = {"fedra": (0.9, 0.7), "fedavg": (0.6, 0.4), "head_only": (0.85, 0.95), "allsmall": (0.5, 0.51)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("results")
    for method, (a, b) in SCORES.items():
        write_cell(found / "s", method, evaluation=eval_rows({12: {"a": a, "b": b}}))
    write_cell(found / "s", "broken", status="failed")
    return found


def told(folder, *words, code=0):
    done = fedbench("compare", "s", *words, cwd=folder)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def order(text):
    """The methods in the order in which lines or records begin with them."""
    return [
        word
        for line in text.replace("\\", "").splitlines()
        if (word := line.strip("| ").split(" ")[0]) in {*SCORES, "broken"}
    ]


WANTED = ["--where", "accuracy > 50", "--where", "method != allsmall", "--sort", "accuracy"]


def test_lines_are_chosen_and_in_order_in_every_format(folder):
    for form in ("rich", "markdown", "latex"):
        lines = order(told(folder, *WANTED, "--format", form))
        assert list(dict.fromkeys(lines)) == ["head_only", "fedra"], form  # LaTeX has costs in a table of their own
    rows = list(csv.DictReader(io.StringIO(told(folder, *WANTED, "--format", "csv"))))
    assert list(dict.fromkeys(row["method"] for row in rows)) == ["head_only", "fedra"]
    assert [row["domain"] for row in rows] == ["a", "b", "average"] * 2  # as without a filter
    (found,) = json.loads(told(folder, *WANTED, "--format", "json"))
    assert [row["method"] for row in found["rows"]] == ["head_only", "fedra"] and "runs" in found["rows"][0]


def test_columns_are_chosen_and_in_order_in_every_format(folder):
    given = ["--columns", "worst,accuracy", "--sort", "worst:asc"]
    head = next(x for x in told(folder, *given).splitlines() if x.startswith("method"))
    assert head.split() == ["method", "worst", "average"]
    assert "| method | worst | average |" in told(folder, *given, "--format", "markdown")
    assert r"method & worst & average \\" in told(folder, *given, "--format", "latex")
    rows = list(csv.reader(io.StringIO(told(folder, *given, "--format", "csv"))))
    assert rows[0] == [
        *("suite", "scenario", "variant", "backbone", "dataset", "profile", "method", "worst", "average"),
    ]
    assert [row[-3:] for row in rows[1:3]] == [["fedavg", "0.4", "0.5"], ["allsmall", "0.5", "0.505"]]
    last = json.loads(told(folder, *given, "--format", "json"))[-1]
    assert last == dict(zip(rows[0], rows[-1], strict=True)) | {"average": "failed", "worst": None}


def test_numbers_come_best_first_then_words_and_blanks_and_either_way_when_asked(folder):
    assert order(told(folder, "--sort", "average")) == ["head_only", "fedra", "allsmall", "fedavg", "broken"]
    assert order(told(folder, "--sort", "average:asc")) == ["fedavg", "allsmall", "fedra", "head_only", "broken"]
    assert order(told(folder, "--sort", "method:desc"))[0] == "head_only"


def test_what_is_no_column_is_told_with_those_that_are(folder):
    assert "no column is called 'avrage' here; did you mean 'average'?" in told(folder, "--sort", "avrage", code=2)
    assert "it is chosen with --scenario" in told(folder, "--where", "scenario = x", code=2)
    assert "a name is missing" in told(folder, "--columns", "average,,worst", code=2)


def test_nothing_that_fits_is_said_and_no_mistake(folder):
    assert told(folder, "--where", "average > 99").strip() == "0 of 5 lines fit: average > 99."
    assert told(folder, "--where", "average > 99", "--format", "csv").count("\n") == 1
    assert json.loads(told(folder, "--where", "average > 99", "--columns", "worst", "--format", "json")) == []


def test_other_views_are_filtered_too_and_sentences_on_columns_that_went_go_along(folder):
    text = told(folder, "--costs", "--sort", "whole run:desc", "--where", "whole run > 0")
    assert "lines fit" in text
    records = json.loads(told(folder, "--pairs", "--columns", "seeds", "--format", "json"))
    assert records and set(records[0]) >= {"pair", "seeds"}
    assert "worst:" not in told(folder, "--columns", "average") and "worst:" in told(folder, "--columns", "worst")
