"""fedbench/report/paper.py: both numbers in every format, on a terminal and by the command."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command import fedbench
from factories import eval_rows, write_cell
from papers import VIT, compared, measure, numbers, rendered, shown

from fedbench.report.paper import comparisons
from fedbench.report.views.paper import COLUMNS
from fedbench.results import load
from fedbench.results.index import write_expected


def test_csv_has_a_row_for_every_number_of_either_side(suite):
    measure(suite, "fedra", (0.9, 0.8))
    measure(suite, "head_only", (0.5, 0.6))
    text = rendered([compared(suite)], "csv")
    assert text.splitlines()[0].split(",") == list(COLUMNS)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 4 * 3
    fedra = next(row for row in rows if (row["method"], row["domain"]) == ("fedra", "average"))
    assert float(fedra["measured_percent"]) == pytest.approx(85.0) and fedra["paper_percent"] == "86.48"
    assert float(fedra["difference"]) == pytest.approx(-1.48) and fedra["n_seeds"] == "1"
    missing = next(row for row in rows if row["method"] == "depthfl")
    assert (missing["measured_percent"], missing["difference"], missing["n_seeds"]) == ("", "", "0")
    ours = next(row for row in rows if row["method"] == "head_only")
    assert (ours["paper_percent"], ours["difference"], ours["source"]) == ("", "", "")


def test_json_says_what_is_apart_and_both_orders(suite):
    measure(suite, "fedra", (0.9, 0.8), train__rounds=1)
    measure(suite, "depthfl", (0.5, 0.6), train__rounds=1)
    (found,) = json.loads(rendered([compared(suite)], "json"))["tables"]
    assert not found["comparable"] and "1 round" in found["above"]
    (both,) = found["orders"]
    assert both["measured"] == both["paper"] == [["fedra"], ["depthfl"]]


def test_markdown_and_latex_say_it_too(suite):
    measure(suite, "fedra", (0.9, 0.8), train__rounds=1)
    found = [compared(suite)]
    markdown, latex = rendered(found, "markdown"), rendered(found, "latex")
    assert "| fedra | 85.0 | 86.48 |" in markdown and "not comparable" in markdown
    assert r"fedra & 85.0 & 86.48 \\" in latex and "not comparable" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("changes", [{}, {"train__rounds": 1}])
def test_no_line_is_wider_than_the_terminal(tmp_path, width, changes):
    domains = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch", "average")
    row = numbers()[0] | {"dataset": "domainnet"}
    many = [row | {"metric": d, "method": m} for d in domains for m in ("inclusivefl", "fedra")]
    many += [n | {"dataset": f"set{i}"} for i in range(5) for n in many]
    write_expected(tmp_path / "s", "s", many)
    own = {"backbone": {"name": VIT}, "data__name": "domainnet", "train__rounds": 100} | changes
    for seed in (0, 1):
        rows = eval_rows({9: dict.fromkeys(domains[:-1], 0.5 + seed / 10)})
        write_cell(tmp_path / "s", "fedra", seed, scenario="skew", evaluation=rows, **own)
    text = shown(comparisons(load([tmp_path])), width)
    assert max(map(len, text.splitlines())) <= width
    assert ("not comparable" in " ".join(text.split())) == bool(changes)


def test_the_command_shows_it_and_refuses_what_it_cannot_compare(suite):
    measure(suite, "fedra", (0.9, 0.8))
    done = fedbench("compare", "paper", suite, cwd=suite, columns=80)
    assert done.exit_code == 0 and "difference" in done.output
    assert json.loads(fedbench("compare", "paper", suite, "--format", "json", cwd=suite).stdout)["tables"][0][
        "comparable"
    ]
    for option, why in ((("--metric", "loss"), "loss is not"), (("--baseline", "fedra"), "No such option")):
        done = fedbench("compare", "paper", suite, *option, cwd=suite)
        assert done.exit_code == 2 and why in done.stderr
