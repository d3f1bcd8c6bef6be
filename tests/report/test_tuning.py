"""What fewer trials would have given, and where a winner stands at the edge."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from command import fedbench
from factories import eval_rows, write_cell
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.views.tuning import expected, expected_best, how_tuned, shortest
from fedbench.results import load
from fedbench.results.tuning import Contest, merge_tunings
from fedbench.types.tuning import Tuning

SCORES = [0.2, 0.5, 0.5, 0.9]


@pytest.mark.parametrize(("lowest", "best"), [(False, max), (True, min)])
@pytest.mark.parametrize("trials", [1, 2, 3])
def test_the_expected_best_is_the_mean_over_all_draws(trials, lowest, best):
    draws = list(itertools.product(SCORES, repeat=trials))
    assert expected_best(SCORES, trials, lowest) == pytest.approx(math.fsum(map(best, draws)) / len(draws))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(1, 20))
def test_more_trials_expect_no_less_and_never_more_than_the_best(scores, trials):
    fewer, more = expected_best(scores, trials), expected_best(scores, trials + 1)
    assert fewer <= more + 1e-12 and more <= max(scores) + 1e-12


def tuned(scores, metric="accuracy"):
    """Scores of each candidate after the last of two rounds; None for one that failed."""
    space = {"train.optimizer.lr": {"log": [0.001, 1]}, "methods.other.beta": {"choice": ["a", "b"]}}
    rates = [{"train.optimizer.lr": 0.01 * 2**k, "methods.other.beta": "ab"[k % 2]} for k in range(len(scores))]
    cells = {k: {1000: Path(f"c{k}")} for k in range(len(scores))}
    contest = Contest(("skew", "", "fedra"), Tuning(space, rates, [1000], metric, []), (2,), cells)
    contest.__dict__["scores"] = {k: {} if score is None else {2: score} for k, score in enumerate(scores)}
    return contest


def test_a_candidate_without_a_score_counts_as_the_worst_that_has_one():
    assert expected(tuned([0.5, None, 0.9]), 1) == pytest.approx((0.5 + 0.5 + 0.9) / 3)
    assert expected(tuned([2.0, None, 1.0], "loss"), 1) == pytest.approx((2 + 2 + 1) / 3)
    assert expected(tuned([2.0, None, 1.0], "loss"), 50) == pytest.approx(1.0, abs=1e-6)
    assert expected(tuned([None, None]), 1) is None


def test_the_edge_is_the_lowest_or_the_highest_number_that_was_tried():
    tuning = tuned([0.1, 0.2, 0.3]).tuning
    assert tuning.at_edge(0, "fedra") == tuning.at_edge(2, "fedra") == ["train.optimizer.lr"]
    assert tuning.at_edge(1, "fedra") == []
    assert tuning.at_edge(1, "other") == []  # texts have no edge


@pytest.mark.parametrize("own", ["methods.fedv.optimizer.lr", "methods.fedv.train.optimizer.lr"])
def test_a_method_with_a_rate_of_its_own_has_no_other(own):
    """That of everybody else, drawn beside it, changes nothing of it, and is at no edge."""
    space = {"train.optimizer.lr": {"log": [0.01, 1]}, own: {"log": [1e-4, 1e-2]}}
    rates = [{"train.optimizer.lr": one, own: two} for one, two in ((0.01, 1e-3), (0.1, 1e-4), (1.0, 1e-2))]
    tuning = Tuning(space, rates, [1000], "accuracy", [])
    assert tuning.at_edge(0, "fedv") == [] and tuning.at_edge(0, "fedra") == ["train.optimizer.lr"]
    assert tuning.at_edge(1, "fedv") == [own] and tuning.at_edge(1, "fedra") == []


def test_columns_are_called_by_as_few_parts_of_their_keys_as_differ():
    keys = [
        "train.optimizer.lr",
        "methods.fedv.server_optimizer.lr",
        "adapter.rank",
        "methods.a.beta",
        "methods.b.beta",
    ]
    assert list(shortest(keys).values()) == ["optimizer.lr", "server_optimizer.lr", "rank", "a.beta", "b.beta"]


def suites(folder, **candidates):
    """Suites of one cell each; of how many candidates where they are tuned, None where not."""
    for name, n in candidates.items():
        write_cell(folder / name, "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
        if n:
            rates = [{"train.optimizer.lr": 0.01 * (k + 1)} for k in range(n)]
            space = {"train.optimizer.lr": {"log": [0.001, 1]}}
            tuning = Tuning(space, rates, [1000], "accuracy", [])
            merge_tunings(folder / name, name, {("mixed", "", "fedra"): tuning})
    return how_tuned(load([folder]))


def test_only_suites_that_were_tuned_are_said_to_be(tmp_path):
    assert suites(tmp_path / "none", plain=None) == []
    (all_of_them,) = suites(tmp_path / "all", one=8, two=8)
    assert all_of_them.startswith("Tuned: every method reports the best of 8 candidates, ")
    (some,) = suites(tmp_path / "some", one=8, plain=None, two=8)
    assert some.startswith("Tuned: in one, two every method reports the best of 8 candidates, ")
    few, many = suites(tmp_path / "unlike", one=4, two=8)
    assert "in one every method reports the best of 4" in few and "in two every method reports the best of 8" in many
    shown = fedbench("compare", "summary", "some", cwd=tmp_path, columns=200).output
    assert "Tuned: in one, two every method" in shown
