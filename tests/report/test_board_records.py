"""fedbench/report/records.py: a leaderboard for other programs."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from boards import board, rendered, write
from factories import write_cell

from fedbench.report.records import CSV_COLUMNS


def test_csv_has_the_promised_columns_and_an_average(tmp_path):
    write(tmp_path / "s", "fedra", (0.75, 0.25), (0.25, 0.25))
    write_cell(tmp_path / "s", "exclusive", status="not_applicable")
    text = rendered([board(tmp_path)], "csv")
    assert text.splitlines()[0] == (
        "suite,scenario,method,variant,backbone,dataset,metric,domain,client,split,mean,std,n_seeds,round,"
        "low,high,interval,group"
    )
    assert text.splitlines()[0].split(",") == list(CSV_COLUMNS)
    std = np.std([0.75, 0.25], ddof=1)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["domain"] for r in rows] == ["a", "b", "average"]
    assert rows[2] == {
        **dict(suite="s", scenario="mixed", method="fedra", variant="", backbone="micro_vit", dataset="strokes6"),
        **dict(metric="accuracy", domain="average", client="-1", split="test", n_seeds="2", round="12"),
        **dict(mean="0.375", std=str(float(std / 2)), low="", high="", interval="", group=""),
    }


def test_csv_has_intervals_of_everything_and_the_group_of_the_average(tmp_path):
    for method, up in (("fedra", 0.2), ("depthfl", 0.0)):
        write(tmp_path / "s", method, *((0.5 + up + e, 0.25 + up) for e in (0.0, 0.01, 0.02)))
    rows = list(csv.DictReader(io.StringIO(rendered([board(tmp_path)], "csv"))))
    a, b, average = rows[:3]
    half = 4.302653 * 0.01 / 3**0.5
    assert (float(a["low"]), float(a["high"])) == pytest.approx((0.71 - half, 0.71 + half))
    assert (b["low"], b["high"], b["interval"], b["group"]) == ("0.45", "0.45", "t", "")
    assert [row["group"] for row in rows if row["domain"] == "average"] == ["a", "a"]  # equal gaps: 2 / 2^3 at best


def test_json_holds_everything(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write_cell(tmp_path / "s", "depthfl", status="failed", reason="boom")
    (found,) = json.loads(rendered([board(tmp_path)], "json"))
    assert found["rows"][0]["average"] == {
        "mean": pytest.approx(0.7),
        "std": None,
        "n": 1,
        "low": None,
        "high": None,
        "interval": None,
    }
    assert found["rows"][0]["group"] == "" and found["margin"] == 0.01 and "pairs" not in found
    assert found["rows"][0]["cost"]["gamma"] == 1
    assert found["rows"][1]["round"] is None and found["rows"][1]["status"] == "failed"
    assert found["notes"] == ["depthfl: failed: boom"]


def test_json_has_no_nan(tmp_path):
    write(tmp_path / "s", "fedra", (float("nan"), 0.6))
    assert json.loads(rendered([board(tmp_path)], "json"))[0]["rows"][0]["average"]["mean"] is None
