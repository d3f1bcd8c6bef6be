"""Who is lost and who is late: functions of seed, round and client, whatever the method."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.simulation.faults import Faults

SLOW = {"probability": 1.0, "slowdown": 4, "deadline": 2, "late": "partial"}


def done(faults, t, client, steps):
    """The steps that a client does, and whether its work arrives."""
    fate = faults.fate(t, client, steps)
    return fate.steps, fate.arrives


def of(settings, steps=8, clients=400, seed=0, t=0):
    return [done(Faults(settings, seed), t, client, steps) for client in range(clients)]


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
    assert done(Faults({"stragglers": {**SLOW, "slowdown": 49, "deadline": 1}}, 0), 0, 0, 49) == (1, True)
    assert done(Faults({"stragglers": {**SLOW, "slowdown": 3.6, "deadline": 1.2}}, 0), 0, 0, 3) == (1, True)
    assert done(Faults({"stragglers": {**SLOW, "slowdown": 1.8, "deadline": 1.2}}, 0), 0, 0, 3) == (2, True)


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


# --- uploads that are spoilt --------------------------------------------------------------------------------------

SENT = {"r/0/A": torch.tensor([[3.0, 1.0]]), "shared/s": torch.tensor(2.0)}
GIVEN = {"r/0/A": torch.tensor([[1.0, 1.0]]), "shared/s": torch.tensor(4.0)}


def spoilt(kind, sent=SENT, given=GIVEN, seed=0, t=0, client=0, **more):
    faults = Faults({"corrupted": {"probability": 1.0, "kind": kind, **more}}, seed)
    return faults.corrupted(t, client, sent, given)


def test_so_many_uploads_are_spoilt_and_by_seed_round_and_client_alone():
    def of(seed=0, t=0, clients=400, **more):
        faults = Faults({"corrupted": {"probability": 0.2, "kind": "inf"}, **more}, seed)
        return [faults.kind_of(t, client) for client in range(clients)]

    assert set(of()) == {"inf", ""} and abs(of().count("inf") - 80) < 4 * (400 * 0.2 * 0.8) ** 0.5
    assert of() == of() and of(clients=10) == of()[:10]
    assert of() != of(seed=1) and of() != of(t=1)
    assert of(dropout=0.5) == of()  # one fault does not move another
    assert not any(Faults({}, 0).kind_of(0, client) for client in range(10))


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("scaled", {"scale": 10.0}, ([[21.0, 1.0]], -16.0)),
        ("scaled", {}, ([[2_000_001.0, 1.0]], -1_999_996.0)),
        ("scaled", {"scale": -1.0}, ([[-1.0, 1.0]], 6.0)),
        ("scaled", {"scale": 0.0}, ([[1.0, 1.0]], 4.0)),
        ("inf", {}, ([[math.inf, math.inf]], math.inf)),
        ("wrong_shape", {}, ([[[3.0, 1.0]], [[3.0, 1.0]]], [2.0, 2.0])),
    ],
)
def test_what_arrives_instead(kind, more, expected):
    assert tuple(value.tolist() for value in spoilt(kind, **more).values()) == expected


def test_no_number_arrives():
    assert all(value.isnan().all() and value.shape == SENT[place].shape for place, value in spoilt("nan").items())


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_noise_is_as_large_as_the_update_it_replaces(scale):
    given = {"r/0/A": torch.ones(100, 100), "r/0/B": torch.ones(100, 100)}
    sent = {"r/0/A": torch.full((100, 100), 1.5), "r/0/B": torch.ones(100, 100)}  # B did not move
    found = spoilt("noise", sent, given, scale=scale)
    noise = found["r/0/A"] - 1
    assert abs(noise.std() - 0.5 * scale) < 0.02 * scale and abs(noise.mean()) < 0.02 * scale
    assert torch.equal(found["r/0/B"], given["r/0/B"])
    again = spoilt("noise", dict(reversed(sent.items())), given, scale=scale)
    assert torch.equal(found["r/0/A"], again["r/0/A"])  # whatever the order of the tensors
    for other in ({"seed": 1}, {"t": 1}, {"client": 1}):
        assert not torch.equal(found["r/0/A"], spoilt("noise", sent, given, scale=scale, **other)["r/0/A"])
