"""fedbench/report/text.py: a leaderboard for other programs and for papers."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from boards import board, write
from factories import write_cell

from fedbench.report.text import CSV_COLUMNS, render


def test_csv_has_the_promised_columns_and_an_average(tmp_path):
    write(tmp_path / "s", "fedra", (0.75, 0.25), (0.25, 0.25))
    write_cell(tmp_path / "s", "exclusive", status="not_applicable")
    text = render([board(tmp_path)], "csv")
    assert text.splitlines()[0] == (
        "suite,scenario,method,variant,backbone,dataset,metric,domain,client,split,mean,std,n_seeds,round"
    )
    assert text.splitlines()[0].split(",") == list(CSV_COLUMNS)
    std = np.std([0.75, 0.25], ddof=1)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["domain"] for r in rows] == ["a", "b", "average"]
    assert rows[2] == {
        **dict(suite="s", scenario="mixed", method="fedra", variant="", backbone="micro_vit", dataset="strokes6"),
        **dict(metric="accuracy", domain="average", client="-1", split="test", n_seeds="2", round="12"),
        **dict(mean="0.375", std=str(float(std / 2))),
    }


def test_json_holds_everything(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write_cell(tmp_path / "s", "depthfl", status="failed", reason="boom")
    (found,) = json.loads(render([board(tmp_path)], "json"))
    assert found["rows"][0]["average"] == {"mean": pytest.approx(0.7), "std": None, "n": 1}
    assert found["rows"][0]["cost"]["gamma"] == 1
    assert found["rows"][1]["round"] is None and found["rows"][1]["status"] == "failed"
    assert found["notes"] == ["depthfl: failed: boom"]


def test_json_has_no_nan(tmp_path):
    write(tmp_path / "s", "fedra", (float("nan"), 0.6))
    assert json.loads(render([board(tmp_path)], "json"))[0]["rows"][0]["average"]["mean"] is None


def test_markdown_escapes_pipes(tmp_path):
    write(tmp_path / "s", "fed|ra_x", (0.8, 0.6))
    write(tmp_path / "s", "other", (0.7, 0.5))
    lines = render([board(tmp_path)], "markdown").splitlines()
    assert "| fed\\|ra\\_x | **80.0** | **60.0** | **70.0** | **60.0** |" in next(
        x for x in lines if "ra" in x and "80" in x
    )
    assert any(line.startswith("| other | *70.0* |") for line in lines)


def test_latex_escapes_and_marks(tmp_path):
    write(tmp_path / "s_1", "fed_ra&co", (0.8, 0.6))
    write(tmp_path / "s_1", "other", (0.7, 0.5))
    write(tmp_path / "s_1", "alllarge", (0.9, 0.9))
    text = render([board(tmp_path)], "latex")
    assert r"fed\_ra\&co & \textbf{80.0} & \textbf{60.0} & \textbf{70.0} & \textbf{60.0} & $-$20.0 \\" in text
    assert r"other & \underline{70.0}" in text
    assert r"accuracy, \% $\cdot$ round 12" in text and r"\toprule" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
