"""Every number that a view prints is there as a number, with its unit and with what is better, for filters."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.report.selection.quantity import quantity
from fedbench.report.views import chosen
from fedbench.results import load

SIZE = {"rank": None, "width": None, "memory_bytes": 2**20, "alone": True}
VIEWS = [
    *[{"kind": kind} for kind in ("", "--summary", "--costs", "--pairs", "--ranks", "--sizes")],
    {"kind": "--reach", "reach": "50%"},
    {"kind": "--pareto", "pareto": "bytes"},
    {"kind": "--by"},
]


def cells(folder, clients=False):
    """Two methods and a ceiling in two scenarios, three seeds each; or tested client by client."""
    for i, (method, level) in enumerate({"fedra": 0.7, "depthfl": 0.6, "alllarge": 0.9}.items()):
        for seed in range(3):
            for scenario in ("one", "two"):
                value = level + seed * (i + 1) / 100
                rows = eval_rows({2: {"a": value, "b": value / 2}}, client=0 if clients else -1)
                rounds = [round_row(t, 0, [0] * (i + 1)) for t in (1, 2)]
                facts = {"round": 2, "capacity": 12, "metric": "accuracy", "value": value}
                there = [{**facts, **SIZE, "domain": "a", "client": -1, "examples": 300}]
                runs = [{**facts, "rank": None, "width": None, "client": 0, "domain": "a", "device": "phone"}]
                parts = {"sizes": there, "deployed": runs}
                write_cell(folder / "s", method, seed, scenario=scenario, evaluation=rows, rounds=rounds, **parts)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return cells(tmp_path_factory.mktemp("values"))


@pytest.mark.parametrize("asked", VIEWS, ids=lambda asked: asked["kind"])
def test_every_number_is_there_whole_with_its_unit(folder, tmp_path, asked):
    results = load([cells(tmp_path, True) if asked["kind"] == "--by" else folder])
    pages = chosen(results, **asked, form="").pages
    scores = [c for page in pages for table in page.tables for c in table.columns if c.part != "name"]
    assert scores
    for column in scores:
        for cell in column.cells:
            if found := quantity(cell.text):
                assert cell.value is not None, column.title
                times = 100 if column.unit in ("%", "points") else 1
                assert found.number == pytest.approx(times * cell.value, rel=0.01, abs=0.06), column.title
            assert bool(cell.ends) == (column.interval and cell.text != "")
        if any("%" in cell.text or "." in cell.text and (cell.value or 1) < 1 for cell in column.cells):
            assert column.best or column.unit or column.interval, column.title


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sizes", "--where", "deployable > 75"), ["alllarge"]),
        (("--sizes", "--where", "worst > 75", "--where", "model >= 40"), ["alllarge"]),
        (("--pareto", "bytes", "--where", "average > 60"), ["alllarge"]),
        (("--pareto", "bytes", "--sort", "accuracy"), ["alllarge", "fedra", "depthfl"]),
        (("--pareto", "bytes", "--sort", "bytes"), ["fedra", "depthfl", "alllarge"]),
        (("--reach", "50%", "--where", "bytes < 4MB"), ["fedra"]),
        (("--ranks", "--where", "mean rank <= 1"), ["fedra"]),
        (("--costs", "--where", "memory < 15MB"), ["fedra"]),
        (("--pairs", "--where", "q <= 0.05"), ["fedra"]),
        (("--pairs", "--where", "p < 0.0005"), []),
        (("--pairs", "--where", "difference > 3"), ["fedra"]),
    ],
)
def test_conditions_and_orders_go_by_the_number(folder, words, told):
    text = fedbench("compare", "s", "--scenario", "one", *words, cwd=folder, columns=200).stdout
    begun = (line.split()[0] for line in text.splitlines() if line.strip())
    assert list(dict.fromkeys(word for word in begun if word in ("fedra", "depthfl", "alllarge"))) == told


def records(folder, *words):
    done = fedbench("compare", "s", *words, "--format", "csv", cwd=folder)
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout)))


@pytest.mark.parametrize(
    "words", [("--pairs",), ("--sizes",), ("--pareto", "bytes"), ("--reach", "60%"), ("--costs",), ()], ids=" ".join
)
def test_programs_read_the_records_themselves_of_lines_that_fit(folder, words):
    everything = records(folder, *words)
    name = "pair" if "--pairs" in words else "method"
    some = records(folder, *words, "--where", f"{name} ~ fedra*")
    assert some == [row for row in everything if row["method"] == "fedra"] and some
    found = json.loads(fedbench("compare", "s", *words, "--sort", name, "--format", "json", cwd=folder).stdout)
    assert found and isinstance(found, list)


def test_intervals_have_two_ends_and_scores_are_fractions_whatever_columns_are_asked_for(folder):
    row = records(folder, "--scenario", "one", "--baseline", "fedra", "--columns", "average,interval,gap,gap interval")[
        1
    ]
    ends = [
        float(row[f"{title}, {end}"]) for title in ("95 % interval", "gap, 95 % interval") for end in ("low", "high")
    ]
    assert row["method"] == "depthfl" and ends[0] < float(row["average"]) < ends[1] < 1
    assert -1 < ends[2] < float(row["gap"]) < ends[3] < 0
    pair = records(folder, "--scenario", "one", "--pairs", "--columns", "difference,95 % interval,q")[0]
    assert float(pair["95 % interval, low"]) < float(pair["difference"]) < float(pair["95 % interval, high"]) < 1
    size = records(folder, "--scenario", "one", "--sizes", "--columns", "deployable,worst,model,run any")[0]
    assert all(0 <= float(size[name]) <= 1 for name in ("deployable", "worst", "model", "run any"))


def test_programs_are_told_whole_titles_where_pages_have_numbers(tmp_path):
    names = [f"a scenario with a long name {i}" for i in range(2)]
    for name in names:
        for method, value in {"fedra": 0.7, "depthfl": 0.6}.items():
            write_cell(tmp_path / "s", method, scenario=name, evaluation=eval_rows({1: {"a": value}}))
    for view in ("--summary", "--ranks"):
        row = records(tmp_path, view, "--where", "method = fedra")[0]
        assert row["method"] == "fedra" and set(names) <= set(row) and not {"1", "2"} & set(row)
        assert float(row[names[0]]) == (0.7 if view == "--summary" else 1)
