"""More than eight domains: the worst, the lower quartile and the median in tables and curves, all where asked for."""

from __future__ import annotations

import json
import re

import pytest
from command import fedbench
from factories import eval_rows, prefix_rounds, write_cell

import fedbench as api
from fedbench.report.plot_data import boards, by_panel
from fedbench.report.run_scores import among_domains
from fedbench.results import load

WRITERS = [f"writer {i:02}" for i in range(9)]


@pytest.fixture
def folder(tmp_path):
    """Nine writers: fedra has 10, 20, ..., 90 %, and one point more with each seed; allsmall half of that."""
    suite = tmp_path / "results" / "writers"
    suite.mkdir(parents=True)
    for seed in (0, 1, 2):
        for method, times in (("fedra", 1.0), ("allsmall", 0.5)):
            scores = {name: times * (0.1 * (i + 1) + 0.01 * seed) for i, name in enumerate(reversed(WRITERS))}
            rows = eval_rows({6: dict.fromkeys(scores, 0.01), 12: scores})
            write_cell(suite, method, seed, scenario="all", evaluation=rows, rounds=prefix_rounds())
    return suite.parent


def compare(folder, *words):
    done = fedbench("compare", folder, *words, cwd=folder.parent, columns=400)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("share", "accuracy", "loss"), [(0, 0.1, 0.9), (0.25, 0.3, 0.7), (0.5, 0.5, 0.5), (0.0625, 0.15, 0.85)]
)
def test_a_share_of_the_domains_is_no_better(share, accuracy, loss):
    domains = {name: 0.1 * (i + 1) for i, name in enumerate(WRITERS)}
    assert among_domains(domains, "accuracy", share) == pytest.approx(accuracy)
    assert among_domains(domains, "loss", share) == pytest.approx(loss)
    assert among_domains({"one": 0.4}, "accuracy", share) == 0.4


def test_tables_show_three_of_many_domains(folder):
    said = compare(folder)
    assert re.search(r"worst +lower quartile +median domain", said) and "writer" not in said.replace("writers", "")
    row = next(line.split() for line in said.splitlines() if line.startswith("fedra  "))
    assert {"11.0", "31.0", "51.0"} <= set(row)
    assert "half of the domains of each seed are no better; `--columns domains` shows all" in " ".join(said.split())
    assert "writer 00" not in compare(folder, "--format", "markdown")


def test_all_are_shown_where_they_are_asked_for_and_programs_have_all(folder):
    said = compare(folder, "--columns", "average,domains")
    head = next(line for line in said.splitlines() if line.startswith("method"))
    assert re.findall(r"writer \d+", head) == WRITERS[::-1] and "quartile" not in head
    row = next(line.split() for line in said.splitlines() if line.startswith("fedra  "))
    assert row[-9:] == ["11.0", "21.0", "31.0", "41.0", "51.0", "61.0", "71.0", "81.0", "91.0"]
    assert "writer 08" in compare(folder, "--columns", "writer 08")
    rows = json.loads(compare(folder, "--format", "json"))["rows"]
    (fedra,) = [row for row in rows if row["method"] == "fedra"]
    assert fedra["writer 00"] == pytest.approx(0.91)
    assert (fedra["worst"], fedra["quartile"], fedra["median_domain"]) == pytest.approx((0.11, 0.31, 0.51))
    assert set(WRITERS) <= set(api.load(str(folder)).leaderboard().columns)


def test_eight_domains_are_shown_as_ever(tmp_path):
    suite = tmp_path / "results" / "few"
    suite.mkdir(parents=True)
    scores = dict.fromkeys(WRITERS[:8], 0.5)
    write_cell(suite, "fedra", 0, evaluation=eval_rows({12: scores}), rounds=prefix_rounds())
    said = compare(suite.parent)
    assert all(name in said for name in WRITERS[:8]) and "quartile" not in said
    assert "quartile" not in json.loads(compare(suite.parent, "--format", "json"))["rows"][0]


def test_curves_by_domain_have_three_panels(folder):
    panels = by_panel(boards(load([folder])), "accuracy", True, "rounds")
    assert list(panels) == ["worst domain", "lower quartile", "median domain"]
    ends = [float(lines["fedra"].mean[-1]) for lines in panels.values()]
    assert ends == pytest.approx([0.11, 0.31, 0.51])
    assert panels["median domain"]["fedra"].std[-1] == pytest.approx(0.01)


def test_the_page_has_all_of_them_and_hides_their_columns(folder):
    done = fedbench("report", folder, "-o", "page.html", cwd=folder.parent)
    assert done.exit_code == 0, done.output
    text = (folder.parent / "page.html").read_text()
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
    (board,) = data["suites"][0]["boards"]
    assert board["many"] is True and board["domains"] == WRITERS[::-1]
    parts = {column["title"]: column["part"] for column in board["page"]["tables"][0]["columns"]}
    assert {parts[name] for name in WRITERS} == {"domain"} and parts["lower quartile"] == parts["average"] == "score"
    assert 'at, part = "domain")' in text, "where bars and points look for their numbers"
    assert text.count('places.get(p.label), "score")') == 2, "where the front looks for its own"
    copied = next(iter(data["texts"].values()))["markdown"] if "texts" in data else ""
    assert "writer 00" not in copied
