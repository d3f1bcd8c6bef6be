"""fedbench methods, and the lists of plugins and suites: grouped, complete, and there without importing anything."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from command import fedbench

from fedbench.registry.catalogue import Component, Unfit
from fedbench.report.views.lists import BOUNDS
from fedbench.suite.shipped import listed, names
from sitemaking.shipped import suites

MINE = """
from fedbench import hookimpl


def mine(setup):
    pass


@hookimpl
def fedbench_register_methods(register):
    register("mine", mine, ignores=["capacities"], family="Sparse", paper="Doe, Mine, 2026")
"""


def test_methods_stand_under_their_family_with_what_is_limited_role_and_paper(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    done = fedbench("methods", "--plugin", "mine.py", cwd=tmp_path, columns=140)
    lines = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    assert ["fedra", "layers", "Su et al., FedRA, ECCV 2024, arXiv 2311.11227"] in lines
    assert ["mine", "ranks, widths", "Doe, Mine, 2026"] in lines
    assert ["head_only", "nothing", "control"] in lines
    families = ["Depth", "Rank", "Aggregation", "Forward passes", "Width", "Whole models", "Split learning", "Sparse"]
    assert [line[0] for line in lines if line[0] in (*families, BOUNDS)] == [*families, BOUNDS]


def test_methods_and_suites_are_rows_for_programs_too(tmp_path, registry):
    rows = json.loads(fedbench("methods", "--format", "json", cwd=tmp_path).stdout)["rows"]
    (own,) = (row for row in rows if row["method"] == "fslora")
    assert own["family"] == "Rank" and own["limited"] == ["layers", "ranks"] and own["role"] == "method"
    suites = csv.DictReader(io.StringIO(fedbench("suites", "list", "--format", "csv", cwd=tmp_path).stdout))
    assert [row["suite"] for row in suites] == list(listed())
    assert "## " in fedbench("methods", "--format", "markdown", cwd=tmp_path).stdout


def test_every_built_in_method_is_there_once(tmp_path, registry):
    done = fedbench("methods", cwd=tmp_path, columns=140)
    found = re.findall(r"^(\w+)  +(?:layers|ranks|widths|nothing)", done.stdout, re.MULTILINE)
    own = [one for one in registry.catalogue.components["method"].values() if one.package == "fedbench"]
    assert sorted(found) == sorted(one.name for one in own)
    assert all(one.family for one in own if one.role == "method")


@pytest.mark.parametrize(("kind", "family"), [("metric", "Depth"), ("method", 3), ("method", "two\nlines")])
def test_a_family_that_no_table_can_show_is_refused(kind, family):
    with pytest.raises(Unfit, match="the family of"):
        Component.of(kind, "mine", lambda: None, "p", "p", family=family)


def test_plugins_are_grouped_by_package_and_by_what_they_are(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    done = fedbench("plugins", "list", "--plugin", "mine.py", cwd=tmp_path, columns=200)
    rows = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    assert ["adapters", "bitfit, bottleneck, full, ia3, lora, vpt"] in [
        row[-2:] for row in rows if row[0] == "fedbench"
    ]
    own = [row for row in rows if row[-1] == "mine.py"]
    assert [len(row) for row in own] == [3] and str(tmp_path / "mine.py").startswith(own[0][0])  # folded where long


FEW = ("quickstart", "tuned/feature_label_skew", "papers/fedra/table1")


@pytest.mark.parametrize("chosen", [FEW, pytest.param(tuple(names()), marks=pytest.mark.slow)], ids=["few", "all"])
def test_the_list_of_suites_says_what_they_are(chosen):
    assert {name: listed()[name] for name in chosen} == suites(chosen), "`python -m sitemaking.shipped` writes it again"
    assert list(listed()) == list(names())


def test_suites_are_listed_with_their_data_cells_and_time(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path))
    lines = fedbench("suites", "list", cwd=tmp_path, columns=150).stdout.splitlines()
    rows = {line.split()[0]: re.split(r"  +", line) for line in lines if line[:1].islower()}
    assert rows["quickstart"][1:4] == ["8", "66 s", "strokes6 (built in)"]
    assert rows["quickstart"][4].startswith("One scenario on the embedded data")
    assert rows["papers/fedra/table1"][1:3] == ["28", "domainnet (missing), nicopp (missing)"]
    assert rows["tuned/feature_skew"][1:3] == ["288", "yes"]
