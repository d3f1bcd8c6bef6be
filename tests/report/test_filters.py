"""fedbench/report/filters.py: which rows and columns of a frame, in which order, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.report.filters import chosen
from fedbench.report.frames import Format, frame

SCORES = {"fedra": (0.9, 0.7), "fedavg": (0.6, 0.4), "head_only": (0.85, 0.95), "allsmall": (0.5, 0.51)}
SIX = sum([0.8] * 6) / 6  # 0.7999999999999999
ROWS = frame(
    [
        {
            "method": "fedra",
            "mean": 0.79961,
            "memory_max": 22_204_416,
            "group": "ab",
            "gap": -0.004,
            "simulated": 185.0,
        },
        {"method": "12", "mean": SIX, "memory_max": 8_309_999, "group": "b", "gap": 0.1},
        {"method": "broken"},
    ],
    ("method", "mean", "std", "memory_max", "group", "gap", "simulated", "ahead"),
    caption="a test",
    by=(),
    metric="accuracy",
    formats={"memory_max": Format("memory", "bytes", "low", "cost")},
)


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("average > 79.97", {"12"}),
        ("accuracy>79.9", {"fedra", "12"}),
        ("mean >= 80", {"12"}),  # by the number itself, but for rounding noise
        ("average = 80.0", {"fedra", "12"}),  # what is printed may be asked for
        ("average == 79.961%", {"fedra"}),
        ("average != 80.0", {"broken"}),
        ("average < 100", {"fedra", "12"}),  # a blank is no number
        ("memory <= 22.3MB", {"fedra", "12"}),
        ("memory < 22204416", {"12"}),
        ("memory < 1 GB", {"fedra", "12"}),
        ("group ~ *a*", {"fedra"}),
        ("group ~ A?", {"fedra"}),
        ('"group" = "ab"', {"fedra"}),
        ("group != ab", {"12", "broken"}),
        ("method = 12", {"12"}),
        ("simulated < 4min", {"fedra"}),
        ("gap > -0.5", {"fedra", "12"}),
        ("gap >= 0.5", {"12"}),
    ],
)
def test_what_fits(text, fitting):
    found = chosen(ROWS, where=[text])
    assert set(found["method"]) == fitting
    assert found.attrs["legend"][-1] == f"{len(fitting)} of 3 lines fit: {text}."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("average", "no operator in it. Write a column"),
        ("> 80", "no column before the operator"),
        ("average >", "no value after the operator"),
        ("average > high", "'high' is no number"),
        ("average > 80 and memory < 3MB", "is no number"),
        ("average > __import__('os')", "is no number"),
        ("average > 0.8", "is in percent: write 80, or 0.8% for so little"),
        ("average > 3 MB", "is in percent: write 80 or 80%"),
        ("memory > 5 s", "is in bytes: write 100MB"),
        ("group > 3", "holds words: use =, != or ~"),
        ("avrage > 3", "no column is called 'avrage' here; did you mean 'average'?"),
    ],
)
def test_what_means_nothing_is_refused_with_what_would_be_right(text, told):
    with pytest.raises(UserError) as raised:
        chosen(ROWS, where=[text])
    assert told in str(raised.value)


def test_the_best_comes_first_then_blanks_and_either_way_when_asked():
    def order(*sort):
        return chosen(ROWS, sort=sort)["method"]

    assert order("accuracy") == ["12", "fedra", "broken"] and order("memory") == ["12", "fedra", "broken"]
    assert order("accuracy:asc") == ["fedra", "12", "broken"] and order("memory:desc") == ["fedra", "12", "broken"]
    assert order("method") == ["12", "broken", "fedra"] and order("method:desc") == ["fedra", "broken", "12"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("results")
    for method, (a, b) in SCORES.items():
        write_cell(found / "s", method, evaluation=eval_rows({12: {"a": a, "b": b}}))
    write_cell(found / "s", "broken", status="failed")
    return found


def told(folder, *words, view=(), code=0):
    done = fedbench("compare", *view, "s", *words, cwd=folder)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def order(text):
    """The methods in the order in which lines begin with them."""
    words = [line.strip("| ").split(" ")[0] for line in text.replace("\\", "").splitlines() if " is best" not in line]
    return list(dict.fromkeys(word for word in words if word in {*SCORES, "broken"}))


WANTED = ["--where", "accuracy > 50", "--where", "method != allsmall", "--sort", "worst:asc"]


def test_rows_are_chosen_and_in_order_in_every_format(folder):
    for form in ("rich", "markdown", "latex"):
        assert order(told(folder, *WANTED, "--format", form)) == ["fedra", "head_only"], form
    rows = csv.DictReader(io.StringIO(told(folder, *WANTED, "--format", "csv")))
    assert [row["method"] for row in rows] == ["fedra", "head_only"]
    found = json.loads(told(folder, *WANTED, "--format", "json"))
    assert [row["method"] for row in found["rows"]] == ["fedra", "head_only"]


def test_columns_are_chosen_and_in_order_in_every_format(folder):
    given = ["--columns", "worst,accuracy", "--sort", "worst:asc"]
    head = next(x for x in told(folder, *given).splitlines() if x.startswith("method"))
    assert head.split() == ["method", "worst", "average"]
    assert "| method | worst | average |" in told(folder, *given, "--format", "markdown")
    assert r"method & worst & average \\" in told(folder, *given, "--format", "latex")
    rows = list(csv.DictReader(io.StringIO(told(folder, *given, "--format", "csv"))))
    assert [(row["method"], row["worst"], row["mean"]) for row in rows[:2]] == [
        *(("fedavg", "0.4", "0.5"), ("allsmall", "0.5", "0.505")),
    ]
    assert "memory_max" not in rows[0] and "scenario" in rows[0]


def test_hidden_columns_can_be_asked_for(folder):
    text = told(folder, "--columns", "seeds,memory,status")
    assert next(x for x in text.splitlines() if x.startswith("method")).split()[1:3] == ["seeds", "memory"]
    assert "failed" in text


def test_what_is_no_column_is_told_with_those_that_are(folder):
    assert "no column is called 'avrage' here; did you mean 'average'?" in told(folder, "--sort", "avrage", code=2)
    assert "a name is missing" in told(folder, "--columns", "average,,worst", code=2)


def test_nothing_that_fits_is_said_and_no_mistake(folder):
    assert told(folder, "--where", "average > 99").strip().endswith("0 of 5 lines fit: average > 99.")
    assert told(folder, "--where", "average > 99", "--format", "csv").count("\n") == 1
    assert json.loads(told(folder, "--where", "average > 99", "--format", "json"))["rows"] == []


def test_other_views_are_filtered_too(folder):
    text = told(folder, "--sort", "total_flops:desc", "--where", "total_flops > 0", view=["costs"])
    assert "lines fit" in text
    records = json.loads(told(folder, "--columns", "seeds", "--format", "json", view=["pairs"]))["rows"]
    assert records and records[0].keys() >= {"method", "other", "n_seeds"}
