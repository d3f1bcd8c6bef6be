"""The events of a cell: what a run shows of a round, and what it ignores."""

from __future__ import annotations

import pytest
from factories import eval_rows

from fedbench.simulation.cell_job import is_of_a_cell, last_rows, score_of


@pytest.mark.parametrize(
    "event",
    [
        {"event": "ready"}, {"event": "round", "round": 1},
        {"event": "torn", "reasons": ["a"]}, {"event": "round", "round": 1, "images": 2, "score": 0.5, "metric": "m"},
    ],
)  # fmt: skip
def test_events_of_a_cell_are_passed_on(event):
    assert is_of_a_cell(event)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "ended"}, {"event": "started"}, {"event": "stopping"}, {"event": "mine"},
        {"event": "round"}, {"event": "round", "round": True}, {"event": "torn"},
    ],
)  # fmt: skip
def test_what_is_not_for_a_cell_to_tell_is_passed_over(event):
    assert not is_of_a_cell(event)


def test_a_run_shows_the_test_score_of_a_round():
    usual = {"evaluation": {"metrics": [{"name": "loss"}, {"name": "accuracy"}]}}
    tested = [*eval_rows({3: {"a": 0.5, "b": 0.7}}), *eval_rows({3: {"a": 9.0}}, "loss")]
    assert score_of(tested, usual) == {"metric": "accuracy", "score": pytest.approx(0.6)}
    assert score_of([], usual) == {}
    assert score_of(eval_rows({3: {"a": float("nan")}}), usual) == {}
    others = {"evaluation": {"metrics": [{"name": "loss"}, {"name": "error"}]}}
    tested = [*eval_rows({3: {"a": 1.5}}, "loss"), *eval_rows({3: {"a": 0.2}}, "error")]
    assert score_of(tested, others) == {"metric": "loss", "score": 1.5}
    assert score_of(eval_rows({3: {"a": 0.2}}, "error/last"), others) == {}


def test_the_last_rows_are_those_of_a_round_that_was_tested():
    rows = eval_rows({2: {"a": 0.1, "b": 0.2}, 3: {"a": 0.3, "b": 0.4}})
    assert last_rows(rows, 3) == rows[2:] and last_rows(rows, 4) == last_rows([], 1) == []
