"""fedbench/runner/progress.py: how far a run is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from factories import eval_rows

from fedbench.runner import progress
from fedbench.runner.progress import RunProgress
from fedbench.simulation.cell_job import checked, last_rows, news

CELL = "s/mixed-a-0-000000000001"
OTHER = "s/mixed-b-0-000000000002"


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.seconds)
    return now


def told(**event):
    return {"folder": CELL, **event}


def test_speeds_are_of_what_was_computed_since_the_cell_and_the_run_began(clock):
    run = RunProgress()
    run.note(told(event="started"))
    run.note(told(event="resumed", round=4))
    assert run.cells[CELL].rate is run.rate is None
    clock.seconds += 6
    run.note(told(event="round", round=6, images=600, metric="accuracy", score=0.5))
    cell = run.cells[CELL]
    assert (cell.rate, cell.score, cell.metric, run.rate) == (100.0, 0.5, "accuracy", 100.0)
    run.note(told(event="ended", status="failed"))
    clock.seconds += 6
    assert run.cells == {} and run.rate == 50.0
    run.note({"event": "elsewhere", "folder": OTHER, "status": "finished"})


def test_news_are_images_trained_on_and_the_test_score():
    usual = {"evaluation": {"metrics": [{"name": "loss"}, {"name": "accuracy"}]}}
    tested = [*eval_rows({3: {"a": 0.5, "b": 0.7}}), *eval_rows({3: {"a": 9.0}}, "loss")]
    assert news(36, tested, usual) == {"images": 36, "metric": "accuracy", "score": pytest.approx(0.6)}
    assert news(36, [], usual) == {"images": 36}
    assert news(0, eval_rows({3: {"a": float("nan")}}), usual) == {"images": 0}
    others = {"evaluation": {"metrics": [{"name": "loss"}, {"name": "error"}]}}
    tested = [*eval_rows({3: {"a": 1.5}}, "loss"), *eval_rows({3: {"a": 0.2}}, "error")]
    assert news(0, tested, others) == {"images": 0, "metric": "loss", "score": 1.5}
    assert news(0, eval_rows({3: {"a": 0.2}}, "error/last"), others) == {"images": 0}


def test_the_last_rows_are_those_of_a_round_that_was_tested():
    rows = eval_rows({2: {"a": 0.1, "b": 0.2}, 3: {"a": 0.3, "b": 0.4}})
    assert last_rows(rows, 3) == rows[2:] and last_rows(rows, 4) == last_rows([], 1) == []


def test_what_goes_with_a_round_is_left_out_where_it_is_no_such_thing():
    said = {"event": "round", "round": 2, "images": "many", "score": 0.5}
    assert checked(said) == {"event": "round", "round": 2}
