"""fedbench/cell/clock.py by hand: three clients with numbers for paper, and who is waited for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fedbench.cell.clock import Clock, Done, idle_share, waited
from fedbench.cell.faults import Faults
from fedbench.types import ClientCost, Device, Sent, ServerCost

FAST = Device("fast", memory=0, flops=1000, flops_bf16=4000, down=100, up=50, watts=10)
SLOW = Device("slow", memory=0, flops=100, flops_bf16=100, down=10, up=5, watts=2)
FAR = Device("far", memory=0, flops=1000, flops_bf16=1000, down=2, up=1)
SERVER = Device("server", memory=0, flops=10_000, flops_bf16=10_000, down=1e9, up=1e9)
COST = ClientCost(flops_per_image=50, bytes_down=200, bytes_up=100, memory_bytes=0)
STEPS, BATCH = 4, 5
WHOLE = Done(20, 5, 0, (20, 5, 0))  # 4 steps of 5 images


def clock(faults=None, seed=0, precision="fp32", devices=(FAST, SLOW, FAR), **given):
    federation = SimpleNamespace(
        devices=devices, server=SERVER, faults=Faults(faults or {}, seed), usual_steps=lambda _: STEPS
    )
    return Clock({"seed": seed, "precision": precision, "devices": given}, federation)


def done(fate):
    images = BATCH * fate.steps
    return Done(images, BATCH if fate.arrives else 0, 0, (20, 5, 0), sent=fate.arrives)


def test_three_clients_and_the_slowest_is_waited_for():
    """20 images of 50 FLOPs: 1000 FLOPs. fast: 2 + 1 + 2 s, slow: 20 + 10 + 20 s, far: 100 + 1 + 100 s."""
    one = clock()
    times = [one.times(0, n, COST, WHOLE) for n in range(3)]
    assert [(each.down, each.compute, each.up) for each in times] == [(2, 1, 2), (20, 10, 20), (100, 1, 100)]
    assert waited(times) == 201 and waited(times[:2]) == 50
    assert idle_share(times) == pytest.approx(1 - (5 + 50 + 201) / (3 * 201))
    assert idle_share(times[:1]) == 0
    energy = [one.columns(0, n, COST, WHOLE)["energy"] for n in range(3)]
    assert energy == [10, 20, None]  # watts times computing alone; nobody knows what the far one draws


def test_bf16_is_as_fast_as_the_device_is_in_it():
    assert [clock(precision="bf16").times(0, n, COST, WHOLE).compute for n in (0, 1)] == [0.25, 10]


def test_a_model_of_its_own_beside_takes_its_time():
    assert clock().times(0, 0, COST, Done(20, 5, 40, (20, 5, 40))).compute == 3


def test_where_the_server_computes_along_clients_wait_and_it_is_one_machine():
    """40,000 FLOPs an image of 5 images for each: 20 s of the server, 60 s for all three."""
    along = ClientCost(50, 0, 0, 0, (Sent("features", up_per_image=10),), ServerCost(flops_per_image=40_000))
    times = [clock(devices=(FAST,) * 3).times(0, n, along, Done(5, 5, 0, (5, 5, 0))) for n in range(3)]
    assert [tuple(each) for each in times] == [(0, 0.25, 1, 20)] * 3
    assert waited(times[:1]) == 21.25 and waited(times) == 60


LATE = {"probability": 1.0, "slowdown": 3, "deadline": 2, "late": "partial"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (20, 20, 20)),  # 2 of 4 steps are done by 2 x 10 s, when it is cut, and sends
        ({"late": "lost"}, (20, 20, 0)),
        ({"slowdown": 1.5}, (20, 15, 20)),  # slow, and done in time
        ({"slowdown": 100}, (20, 20, 0)),
        ({"probability": 0.0}, (20, 10, 20)),
    ],
)
def test_a_straggler_computes_for_longer_and_no_longer_than_its_deadline(changes, expected):
    one = clock({"stragglers": {**LATE, **changes}})
    fate = one.federation.faults.fate(0, 1, STEPS)
    times = one.times(0, 1, COST, done(fate))
    assert (times.down, times.compute, times.up) == expected
    assert times.total == sum(expected)


def test_who_drops_out_is_missed_at_once_and_a_late_one_at_its_deadline():
    """Steps of 2.5 s on the slow device: what was done before it dropped out, three times as slow, or the deadline."""
    one = clock({"dropout": 0.999, "stragglers": {**LATE, "late": "lost"}})
    seen = set()
    for t in range(30):
        fate = one.federation.faults.fate(t, 1, STEPS)
        if not fate.arrives:
            seen.add((fate.late, fate.steps, one.times(t, 1, COST, done(fate)).compute))
    assert seen == {(False, 0, 0), (False, 1, 7.5), (True, 2, 20)}


def test_jitter_is_drawn_by_seed_round_and_client_for_processor_and_network():
    calm, wild = clock(), clock(jitter=0.5)
    plain = calm.times(0, 1, COST, WHOLE)
    factors = {}
    for t in range(40):
        for client in (0, 1):
            times = wild.times(t, client, COST, WHOLE)
            base = calm.times(t, client, COST, WHOLE)
            assert times.up / base.up == pytest.approx(times.down / base.down)
            factors[t, client] = (times.compute / base.compute, times.down / base.down)
    assert len({round(f, 9) for pair in factors.values() for f in pair}) == 160
    assert clock(jitter=0.5).times(3, 1, COST, WHOLE) == wild.times(3, 1, COST, WHOLE)
    assert clock(jitter=0.5, seed=1).times(3, 1, COST, WHOLE) != wild.times(3, 1, COST, WHOLE)
    assert clock(jitter=0.0).times(3, 1, COST, WHOLE) == plain
    above = sum(f > 1 for pair in factors.values() for f in pair)
    assert 52 <= above <= 108  # the median is 1: 80 of 160, within four and a half standard deviations
