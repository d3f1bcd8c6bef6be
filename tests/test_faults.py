"""Who is lost and who is late: functions of seed, round and client, whatever the method."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.faults import Faults

SLOW = {"probability": 1.0, "slowdown": 4, "deadline": 2, "late": "partial"}


def of(settings, steps=8, clients=400, seed=0, t=0):
    return [Faults(settings, seed).of(t, client, steps) for client in range(clients)]


def test_without_faults_everybody_does_everything():
    assert of({}) == [(8, True)] * 400


def test_a_lost_client_has_done_any_number_of_steps_but_all():
    """400 clients at p = 0.3: within four standard deviations of 120; 0..7 steps each a fair share of them."""
    lost = [done for done, arrives in of({"dropout": 0.3}) if not arrives]
    assert abs(len(lost) - 120) < 4 * (400 * 0.3 * 0.7) ** 0.5
    counts = [lost.count(k) for k in range(8)]
    assert sum(counts) == len(lost)
    assert all(abs(count - len(lost) / 8) < 4 * (len(lost) / 8) ** 0.5 for count in counts)
    assert all(done == 8 for done, arrives in of({"dropout": 0.3}) if arrives)


def test_a_client_of_one_step_that_is_lost_has_done_none():
    assert set(of({"dropout": 0.5}, steps=1)) == {(0, False), (1, True)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (4, True)),
        ({"late": "lost"}, (4, False)),
        ({"slowdown": 2}, (8, True)),
        ({"slowdown": 3}, (5, True)),
        ({"slowdown": 100}, (0, False)),
        ({"slowdown": 2, "late": "lost"}, (8, True)),
        ({"probability": 0.0}, (8, True)),
    ],
)
def test_a_straggler_has_done_the_whole_steps_that_fit_before_the_deadline(changes, expected):
    assert of({"stragglers": {**SLOW, **changes}}, clients=3) == [expected] * 3


def test_whole_steps_survive_rounding():
    """49 steps at 1/49 of the speed are one step, although 49 * (1 / 49) is below 1 in floating point."""
    assert Faults({"stragglers": {**SLOW, "slowdown": 49, "deadline": 1}}, 0).of(0, 0, 49) == (1, True)
    assert Faults({"stragglers": {**SLOW, "slowdown": 3.6, "deadline": 1.2}}, 0).of(0, 0, 3) == (1, True)
    assert Faults({"stragglers": {**SLOW, "slowdown": 1.8, "deadline": 1.2}}, 0).of(0, 0, 3) == (2, True)


def test_a_range_of_slowdowns_is_drawn_from():
    found = of({"stragglers": {**SLOW, "slowdown": [1, 8], "deadline": 1}}, steps=80)
    done = [steps for steps, _ in found]
    assert min(done) >= 10 and max(done) <= 80 and len(set(done)) > 40
    half = sum(steps < math.floor(80 / 4.5) for steps in done)  # the middle of the range
    assert abs(half - 200) < 4 * 10


@given(
    p=st.floats(0, 0.99), q=st.floats(0, 1), steps=st.integers(1, 50), late=st.sampled_from(["partial", "lost"]),
    slowdown=st.floats(1, 20), deadline=st.floats(1, 20), seed=st.integers(0, 5), t=st.integers(0, 5),
)  # fmt: skip
def test_both_faults_together(p, q, steps, late, slowdown, deadline, seed, t):
    stragglers = {"probability": q, "slowdown": slowdown, "deadline": deadline, "late": late}
    both, lost, slow = (
        of(settings, steps, clients=8, seed=seed, t=t)
        for settings in ({"dropout": p, "stragglers": stragglers}, {"dropout": p}, {"stragglers": stragglers})
    )
    for (done, arrives), (one, here), (other, in_time) in zip(both, lost, slow, strict=True):
        assert arrives == (here and in_time)
        assert 0 <= done <= min(one, other) if not here else done == other
        assert arrives <= (done > 0)


def test_draws_depend_on_seed_round_and_client_alone():
    settings = {"dropout": 0.5, "stragglers": {**SLOW, "probability": 0.5}}
    assert of(settings) == of(settings)
    assert of(settings) != of(settings, seed=1) and of(settings) != of(settings, t=1)
    assert of(settings, clients=10) == of(settings)[:10]
