"""fedbench/report/style.py: a leaderboard for papers."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from boards import board, rendered, write
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.frames import frame, page
from fedbench.report.style import style

REFERENCE = Path(__file__).parents[2] / "results/reference"


def test_markdown_escapes_pipes(tmp_path):
    write(tmp_path / "s", "fed|ra_x", (0.8, 0.6))
    write(tmp_path / "s", "other", (0.7, 0.5))
    lines = rendered([board(tmp_path)], "markdown").splitlines()
    assert "| fed\\|ra\\_x | **70.0** | 60.0 |" in next(x for x in lines if "ra" in x and "80" in x)
    assert any(line.startswith("| other | 60.0 |") for line in lines)


def test_latex_escapes(tmp_path):
    write(tmp_path / "s_1", "fed_ra&co", (0.8, 0.6))
    write(tmp_path / "s_1", "other", (0.7, 0.5))
    write(tmp_path / "s_1", "alllarge", (0.9, 0.9))
    text = rendered([board(tmp_path)], "latex")
    assert r"fed\_ra\&co &  & \textbf{70.0} & 60.0 \\" in text and r"fed\_ra\&co & $-$20.0 \\" in text
    assert r"accuracy, \% $\cdot$ round 12" in text and r"\toprule" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 4


@pytest.mark.parametrize("sign", ["\n", "\r\n", "\x0b", "\x85", "\u2028", "\n\n"])
def test_no_name_breaks_out_of_a_latex_comment_or_cell(sign):
    name = f"mine{sign}\\input{{evil}}"
    found = frame(
        [{"method": name, "mean": 0.5}],
        ("method", "mean"),
        caption="c",
        by=(),
        pages=[page((), notes=[name], caption=name)],
        legend=[name],
    )
    lines = style(found, "latex").splitlines()
    assert not [line for line in lines if line.startswith("\\input")]
    assert "" not in lines[: lines.index(r"\end{table}")]
    assert sum("mine" in line and line.startswith("%") for line in lines) == 2


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@a", "\t=1", " =1", "=cmd|' /C calc'!A0"])
def test_no_cell_of_a_csv_file_is_a_formula(name):
    found = frame(
        [{"method": name, "mean": -0.5, "names": [name, "b"]}], ("method", "mean", "names"), caption="c", by=()
    )
    (_, row) = csv.reader(io.StringIO(style(found, "csv")))
    assert row[0].startswith("'") and row[2].startswith("'") and row[1] == "-0.5"


@pytest.mark.parametrize("form", ["csv", "json", "markdown", "latex"])
@pytest.mark.parametrize("sign", ["\x1b[2J", "\x9b2J", "\u202e", "\x07"])
def test_no_format_has_what_steers_a_terminal(form, sign):
    name = f"a{sign}b"
    found = frame(
        [{"method": name, "mean": 0.5}],
        ("method", "mean"),
        caption="c",
        by=(),
        pages=[page((), notes=[name])],
        legend=[name],
    )
    text = style(found, form)
    assert sign[0] not in text
    if form == "json":
        assert json.loads(text)["rows"][0]["method"] == name


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_latex_tables_are_no_wider_than_an_article(tmp_path):
    domains = {f"a long domain {i}": 0.5 for i in range(12)}
    for method in ("fedra", "alllarge"):
        write_cell(tmp_path / "s", method, evaluation=eval_rows({1: domains}))
    head = [r"\documentclass{article}", r"\usepackage{booktabs,adjustbox}", r"\begin{document}"]
    body = rendered([board(tmp_path)], "latex")
    (tmp_path / "paper.tex").write_text("\n".join([*head, body, r"\end{document}"]))
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "paper"], cwd=tmp_path, capture_output=True, text=True
    )
    if "adjustbox.sty' not found" in done.stdout:
        pytest.skip("LaTeX's adjustbox is not installed")
    assert done.returncode == 0 and "Overfull" not in done.stdout, done.stdout[-1500:]


def test_papers_are_cited_below_the_tables_of_the_formats_for_papers(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write_cell(tmp_path / "s", "fedra", label="mine", evaluation=eval_rows({12: {"a": 0.1, "b": 0.1}}))
    write(tmp_path / "s", "head_only", (0.7, 0.5))
    line = "fedra, mine (based on fedra): Su et al., FedRA, ECCV 2024, arXiv 2311.11227\n"
    said = {
        form: fedbench("compare", "s", "--format", form, cwd=tmp_path).stdout for form in ("markdown", "latex", "csv")
    }
    assert said["markdown"].endswith(f"Sources:\n\n- {line}") and said["latex"].endswith(f"\n% {line}")
    assert "arXiv" not in said["csv"]
    alone = fedbench("compare", "s", "--method", "head_only", "--format", "markdown", cwd=tmp_path).stdout
    assert "Sources" not in alone


def test_every_latex_table_has_a_label_of_its_own():
    found = fedbench("compare", REFERENCE / "quickstart", "--format", "latex", cwd=REFERENCE).output
    labels = re.findall(r"\\label\{(.*)\}", found)
    assert labels[:2] == ["tab:quickstart-skew-micro-vit-on-strokes6", "tab:quickstart-skew-micro-vit-on-strokes6-gap"]
    assert len({*labels}) == len(labels) == found.count(r"\begin{table}")
    pairs = fedbench("compare", "pairs", REFERENCE / "quickstart", "--format", "latex", cwd=REFERENCE).output
    assert not {*labels} & {*re.findall(r"\\label\{(.*)\}", pairs)}, "a paper may have both"
