"""fedbench/report/frames.py: which columns of a frame, and rows in which order, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.frames import Format, chosen, frame

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


def test_a_legend_explains_the_columns_that_are_shown():
    sentences = [
        "mean, group: over seeds.",
        "memory: the estimate of the largest client.",
        "simulated: by the clock. gap: minus the ceiling's mean.",
        "No column is called so: it stays.",
    ]
    explained = frame(ROWS.to_dict("records"), list(ROWS.columns), caption="a test", by=(), legend=sentences)
    explained.attrs["formats"] = ROWS.attrs["formats"]
    assert chosen(explained).attrs["legend"] == sentences
    assert chosen(explained, columns=["gap"]).attrs["legend"] == sentences[2:]
    assert chosen(explained, columns=["group,memory"]).attrs["legend"] == [*sentences[:2], sentences[3]]


def test_the_best_comes_first_then_blanks_and_either_way_when_asked():
    def order(*sort):
        return chosen(ROWS, sort=sort)["method"].tolist()

    assert order("accuracy") == ["12", "fedra", "broken"] and order("memory") == ["12", "fedra", "broken"]
    assert order("accuracy:asc") == ["fedra", "12", "broken"] and order("memory:desc") == ["fedra", "12", "broken"]
    assert order("method") == ["12", "broken", "fedra"] and order("method:desc") == ["fedra", "broken", "12"]


def test_equal_words_keep_the_order_of_the_next_column_either_way():
    rows = [{"method": name, "role": role} for name, role in zip("abcd", ("x", "y", "x", "y"), strict=True)]
    found = frame(rows, ["method", "role"], caption="a test", by=())
    assert chosen(found, sort=["role:desc", "method"])["method"].tolist() == ["b", "d", "a", "c"]
    assert chosen(found, sort=["role:asc", "method"])["method"].tolist() == ["a", "c", "b", "d"]


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


def test_rows_are_in_order_in_every_format(folder):
    wanted, best = ["--sort", "worst:asc"], ["fedavg", "allsmall", "fedra", "head_only"]
    for form in ("rich", "markdown", "latex"):
        assert order(told(folder, *wanted, "--format", form))[:4] == best, form
    rows = csv.DictReader(io.StringIO(told(folder, *wanted, "--format", "csv")))
    assert [row["method"] for row in rows][:4] == best
    found = json.loads(told(folder, *wanted, "--format", "json"))
    assert [row["method"] for row in found["rows"]][:4] == best


def test_conditions_are_gone_and_what_replaces_them_is_said(folder):
    text = told(folder, "--where", "accuracy > 80", code=2)
    assert all(words in text for words in ("--where is gone", "--sort", "--columns", "`load()`", "--format csv"))


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


def test_other_views_are_sorted_and_cut_too(folder):
    assert order(told(folder, "--sort", "total_flops:desc", view=["costs"]))
    records = json.loads(told(folder, "--columns", "seeds", "--format", "json", view=["pairs"]))["rows"]
    assert records and records[0].keys() >= {"method", "other", "n_seeds"}
