"""The events of a cell: what is none is passed over."""

from __future__ import annotations

import pytest

from fedbench.simulation.cell_job import checked


@pytest.mark.parametrize(
    "event",
    [
        {"event": "ready"}, {"event": "round", "round": 1},
        {"event": "torn", "reasons": ["a"]}, {"event": "round", "round": 1, "images": 2, "score": 0.5, "metric": "m"},
    ],
)  # fmt: skip
def test_events_of_a_cell_are_passed_on(event):
    assert checked(event) == event


@pytest.mark.parametrize(
    "event",
    [
        {"event": "ended"}, {"event": "started"}, {"event": "stopping"}, {"event": "mine"}, {"round": 1},
        {"event": "round"}, {"event": "round", "round": True}, {"event": "torn"}, {"event": ["round"]},
        {"event": "torn", "reasons": [1]},
    ],
)  # fmt: skip
def test_what_is_not_for_a_cell_to_tell_is_passed_over(event):
    assert checked(event) is None
