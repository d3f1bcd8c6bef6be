"""fedbench compare where clients were tested: mean over clients, their spread, the worst of them; by hand."""

from __future__ import annotations

import csv
import io
import json

import pytest
from boards import board, cells, rendered
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.errors import UserError
from fedbench.report.run_scores import curve, run, worst_tenth
from fedbench.report.views.leaderboard import MOST_CLIENTS, clients, leaderboard, worst_clients
from fedbench.results import load


def of_clients(*clients, t=5, metric="accuracy"):
    """Rows of one round: (domain, value) of client 0, 1, ..."""
    return [row for n, (d, v) in enumerate(clients) for row in eval_rows({t: {d: v}}, metric, client=n)]


@pytest.fixture
def fsl(tmp_path):
    """Two methods, two seeds; three clients of two domains, so that domains and clients weigh differently."""
    values = {"fedv": [(0.2, 0.4, 0.9), (0.4, 0.6, 0.8)], "fedavg": [(0.3, 0.3, 0.3), (0.1, 0.4, 0.4)]}
    for method, seeds in values.items():
        for seed, scores in enumerate(seeds):
            rows = of_clients(*zip(("a", "a", "b"), scores, strict=True))
            write_cell(tmp_path / "s", method, seed, evaluation=rows, evaluation__by="client")
    return tmp_path / "s"


def test_clients_count_equally_and_their_spread_is_apart_from_that_of_seeds(fsl):
    fedv = board(fsl).rows[0]
    assert [r.average for r in fedv.runs] == pytest.approx([0.5, 0.6])  # over domains it would be 0.6 and 0.65
    assert fedv.average.std == pytest.approx(0.1 / 2**0.5)  # over the two seeds, n - 1
    # Deviations -0.3, -0.1, 0.4 and -0.2, 0, 0.2, over n = 3.
    assert [r.spread for r in fedv.runs] == pytest.approx([(0.26 / 3) ** 0.5, (0.08 / 3) ** 0.5])
    assert fedv.spread.mean == pytest.approx(((0.26 / 3) ** 0.5 + (0.08 / 3) ** 0.5) / 2)
    assert fedv.worst_clients.mean == pytest.approx((0.2 + 0.4) / 2)
    assert fedv.domains["a"].mean == pytest.approx((0.3 + 0.5) / 2)


@pytest.mark.parametrize(("n", "worst"), [(1, 1), (9, 1), (19, 1), (20, 2), (30, 3), (39, 3)])
def test_the_worst_tenth_is_rounded_down_and_one_client_at_least(n, worst):
    values = [(7 * i % n) / n for i in range(n)]  # each of 0, 1/n, ... once where 7 does not divide n
    assert sorted(values) == [i / n for i in range(n)]
    assert worst_tenth(values, "accuracy") == pytest.approx((worst - 1) / 2 / n)
    assert worst_tenth(values, "loss") == pytest.approx((n - 1 - (worst - 1) / 2) / n)


def test_the_gap_is_that_of_means_over_clients(fsl):
    gap = board(fsl, baseline="fedavg").rows[0].gap
    assert gap.difference == pytest.approx(((0.5 - 0.3) + (0.6 - 0.3)) / 2)


def test_the_best_round_and_the_curve_go_by_the_mean_over_clients(tmp_path):
    first, second = (("a", 0.9), ("a", 0.9), ("a", 0.9), ("b", 0.1)), (("a", 0.6), ("a", 0.6), ("a", 0.6), ("b", 0.7))
    rows = of_clients(*first, t=1) + of_clients(*second, t=2)  # over clients 0.7 and 0.625, over domains 0.5 and 0.65
    both = rows + [r | {"split": "validation"} for r in rows]
    write_cell(tmp_path / "s", "fedv", evaluation=both, evaluation__by="client")
    (result,) = load([tmp_path])
    validated = result.scores("accuracy", "validation")
    assert run(result.scores("accuracy"), 0, "accuracy", "best", validated=validated).round == 1
    worse = {t: {place: 1 - value for place, value in found.items()} for t, found in result.scores("accuracy").items()}
    assert run(worse, 0, "accuracy", "best", validated=validated).average == pytest.approx(0.3)
    means = {t: average for t, (average, _) in curve(result.scores("accuracy")).items()}
    assert means == {1: pytest.approx(0.7), 2: pytest.approx(0.625)}


def test_columns_of_clients_take_the_place_of_the_worst_domain(fsl):
    found = cells(board(fsl))
    assert list(found)[:4] == ["method", "average", "client sd", "worst 10 %"] and list(found)[-2:] == ["a", "b"]
    assert found["average"] == ["55.0", "30.0"]
    assert found["client sd"] == ["22.9", "7.1"]
    assert found["worst 10 %"] == ["30.0", "20.0"]
    sentences = " ".join(leaderboard([board(fsl)]).attrs["legend"])
    assert "plain mean over clients" in sentences and "worst tenth" in sentences
    assert "worst: over the domains" not in sentences


def test_one_domain_is_no_column_next_to_the_mean_of_its_clients(tmp_path):
    rows = of_clients(("mixed", 0.2), ("mixed", 0.4))
    write_cell(tmp_path / "s", "fedv", evaluation=rows, evaluation__by="client")
    assert list(cells(board(tmp_path)))[1:4] == ["average", "client sd", "worst 10 %"]
    assert "mixed" not in cells(board(tmp_path))


def test_domains_have_no_spread_over_clients(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5, "b": 0.7}}))
    found = board(tmp_path)
    assert found.rows[0].spread is None and found.rows[0].worst_clients is None and not found.by_client
    assert "client sd" not in cells(found)


def test_programs_have_them_too(fsl):
    first = next(csv.DictReader(io.StringIO(rendered([board(fsl)], "csv"))))
    told = [float(first[name]) for name in ("mean", "client_sd", "worst_clients", "std")]
    spread = ((0.26 / 3) ** 0.5 + (0.08 / 3) ** 0.5) / 2
    assert told == pytest.approx([0.55, spread, 0.3, 0.1 / 2**0.5])
    assert json.loads(rendered([board(fsl)], "json"))["rows"][0]["worst_clients"] == pytest.approx(0.3)
    assert "| **55.0** ±7.1 | 22.9 | 30.0 |" in rendered([board(fsl)], "markdown")
    assert r"\textbf{55.0} $\pm$7.1 & 22.9 & 30.0 \\" in rendered([board(fsl)], "latex")


@pytest.mark.parametrize("width", [60, 80])
def test_a_leaderboard_of_clients_fits(fsl, width):
    lines = fedbench("compare", fsl, cwd=fsl, columns=width).output.splitlines()
    assert max(map(len, lines)) <= width
    told = [line.split() for line in lines if line.startswith("fedv ")]
    assert told[0][:5] == ["fedv", "55.0", "±7.1", "22.9", "30.0"] and told[-1][-2:] == ["40.0", "85.0"]


def test_by_client_a_line_for_each_is_the_mean_over_seeds(fsl):
    done = fedbench("compare", "clients", fsl, cwd=fsl, columns=80)
    lines = [line.split() for line in done.output.splitlines()]
    assert lines[2] == ["client", "domain", "fedv", "fedavg"]
    assert lines[4:7] == [["0", "a", "30.0", "20.0"], ["1", "a", "50.0", "35.0"], ["2", "b", "85.0", "35.0"]]
    markdown = fedbench("compare", "clients", fsl, "--format", "markdown", cwd=fsl).output
    assert "| 2 | b | 85.0 | 35.0 |" in markdown
    found = json.loads(fedbench("compare", "clients", fsl, "--format", "json", cwd=fsl).stdout)["rows"]
    assert [(row["client"], row["fedv"]) for row in found] == [
        (0, pytest.approx(0.3)),
        (1, 0.5),
        (2, pytest.approx(0.85)),
    ]


@pytest.mark.parametrize(
    ("metric", "left_out"), [("accuracy", {"0", "1"}), ("loss", {str(MOST_CLIENTS), str(MOST_CLIENTS + 1)})]
)
def test_of_many_clients_the_worst_are_listed_in_their_order(tmp_path, metric, left_out):
    values = [("mixed", 0.9 - n / 100) for n in range(MOST_CLIENTS + 2)]
    rows = of_clients(*values) + of_clients(*values, metric="loss")
    write_cell(tmp_path / "s", "fedv", evaluation=rows, evaluation__by="client")
    every = clients([board(tmp_path, metric=metric)])
    found = worst_clients(every)
    listed = found["client"].tolist()
    assert len(every) == MOST_CLIENTS + 2 and len(listed) == MOST_CLIENTS and listed == sorted(listed)
    assert {str(n) for n in every["client"]} - {str(n) for n in listed} == left_out
    assert f"{MOST_CLIENTS} of {MOST_CLIENTS + 2} clients" in found.attrs["pages"][0]["notes"][0]


def test_by_client_needs_clients_that_were_tested(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    with pytest.raises(UserError, match="tested by domain"):
        clients([board(tmp_path)])
