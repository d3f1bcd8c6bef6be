"""When a run counts as collapsed."""

from __future__ import annotations

import math

import pytest

from fedbench.results.scores import collapse, constant_rounds, fall
from fedbench.results.tables import to_table


@pytest.mark.parametrize(
    ("scores", "metric", "how"),
    [
        ({2: 0.5, 4: 0.8, 6: 0.75, 8: 0.3}, "accuracy", "fell after round 6"),
        ({2: 0.5, 4: 0.8, 6: 0.3, 8: 0.7}, "accuracy", None),  # it came back: by exactly ten points lower
        ({2: 0.4, 4: 0.3}, "accuracy", None),  # 0.4 - 0.3 is a little more than 0.1 in binary
        ({2: 0.4, 4: 0.2999}, "accuracy", "fell after round 2"),
        ({2: 0.1, 4: 0.05}, "accuracy", None),  # it never learnt
        ({2: 1.0, 4: 0.5, 6: 1.0}, "loss", None),
        ({2: 1.0, 4: 0.5, 6: 1.1}, "train_loss", "fell after round 4"),
        ({2: 1.0, 4: 900.0}, "milliseconds", None),  # of which nobody knows what much is
        ({2: 0.9, 4: math.nan}, "accuracy", None),
        ({2: math.nan, 4: 0.9, 6: 0.2}, "accuracy/last", "fell after round 4"),
        ({}, "accuracy", None),
    ],
)
def test_a_run_falls_where_it_ends_far_below_its_own_best(scores, metric, how):
    assert collapse(scores, (), metric) == how


def test_a_constant_prediction_is_one_by_the_answers_of_the_last_round():
    scores = {2: 0.6, 4: 0.3}
    assert collapse(scores, {4}, "accuracy") == "constant"
    assert collapse(scores, {2}, "accuracy") == "fell after round 2"
    assert collapse({2: 0.3, 4: 0.3}, {2}, "accuracy") is None


def test_a_fall_is_measured_from_the_best_score():
    assert fall({1: 0.5, 2: 0.9, 3: 0.2}, "accuracy") == pytest.approx(0.7)
    assert fall({1: 2.0, 2: 0.5, 3: 1.5}, "loss") == pytest.approx(1.0)
    assert fall({1: 0.5, 2: 0.9}, "accuracy") == fall({}, "accuracy") == 0


def test_each_output_has_its_own_answers():
    rows = [
        {"round": t, "split": split, "output": output, "examples": 9, "top_share": share}
        for t, split, output, share in [(1, "test", "", 0.4), (2, "test", "", 1.0), (3, "test", "last", 1.0)]
    ]
    table = to_table("answers", rows).to_pandas()
    assert constant_rounds(table, "test", "accuracy") == {2}
    assert constant_rounds(table, "test", "accuracy/last") == {3}
    assert constant_rounds(table, "validation", "accuracy") == set()
