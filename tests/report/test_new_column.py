"""A new column is one place: a metric of a plugin, and a view of one's own, are found in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.frames import Format, frame, page
from fedbench.report.style import style
from fedbench.results import read_manifest, write_manifest

FORMS = ("csv", "json", "markdown", "latex", "html")


@pytest.fixture
def folder(tmp_path):
    """Two methods with a metric of a plugin: milliseconds, less is better."""
    for method, delay in (("fedra", 12.5), ("depthfl", 3.25)):
        cell = write_cell(tmp_path / "s", method, evaluation=eval_rows({12: {"a": delay}}, "delay"))
        said = {"metrics": {"delay": {"better": "lower", "unit": "ms", "format": ".2f"}}}
        write_manifest(cell, {**(read_manifest(cell) or {}), **said})
    return tmp_path


def shown(folder, form):
    return fedbench("compare", "s", "--metric", "delay", "--format", form, cwd=folder).stdout


@pytest.mark.parametrize("form", ["rich", "markdown", "latex"])
def test_a_metric_of_a_plugin_is_shown_with_its_unit_and_the_best_first(folder, form):
    text = shown(folder, form)
    assert "delay, ms" in text and "12.50" in text and text.index("depthfl") < text.index("fedra")


def test_programs_get_its_values_unit_and_direction(folder):
    rows = list(csv.DictReader(io.StringIO(shown(folder, "csv"))))
    assert [(row["method"], float(row["mean"])) for row in rows] == [("depthfl", 3.25), ("fedra", 12.5)]
    found = json.loads(shown(folder, "json"))
    assert (found["metric"], found["direction"], found["units"]["mean"]) == ("delay", "lower", "ms")


@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_a_view_adds_is_styled_by_its_format(form):
    found = frame(
        [{"method": "fedra", "slept": 90.0}, {"method": "depthfl", "slept": None}],
        ("method", "slept"),
        caption="How long methods slept",
        by=(),
        pages=[page((), title="sleep")],
        formats={"slept": Format("time asleep", "seconds", "low")},
    )
    text = style(found, form)
    assert found.attrs["units"] == {"slept": "seconds"}
    assert ("slept" if form in ("csv", "json") else "time asleep") in text
    assert ("90.0" if form in ("csv", "json") else "1 min 30 s") in text
