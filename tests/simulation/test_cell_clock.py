"""Simulated time by hand: three clients, and who is waited for; then in a simulation."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from fedbench.devices.fitting import Work
from fedbench.results.tables import to_table
from fedbench.runner.runner import load
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.faults import Faults
from fedbench.simulation.round_records import Clock
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.state import ClientStorage
from fedbench.types import ClientCost, Cohort, Device, Sent, ServerCost

FAST = Device("fast", memory=0, flops=1000, flops_bf16=4000, down=100, up=50, watts=10)
SLOW = Device("slow", memory=0, flops=100, flops_bf16=100, down=10, up=5, watts=2)
FAR = Device("far", memory=0, flops=1000, flops_bf16=1000, down=2, up=1)
SERVER = Device("server", memory=0, flops=10_000, flops_bf16=10_000, down=1e9, up=1e9)
COST = ClientCost(flops_per_image=50, bytes_down=200, bytes_up=100, memory_bytes=0)
STEPS, BATCH = 4, 5  # 20 images of 50 FLOPs


def clock(faults=None, seed=0, precision="fp32", devices=(FAST, SLOW, FAR), **given):
    def work(client, steps=None):
        steps = STEPS if steps is None else steps
        return Work(BATCH * steps, BATCH if steps else 0, lambda epochs: 10 * epochs * steps)

    federation = SimpleNamespace(
        devices=devices, server=SERVER, faults=Faults(faults or {}, seed), steps=lambda _: STEPS, work=work,
        keeps=ClientStorage(),
    )  # fmt: skip
    return Clock({"seed": seed, "precision": precision, "devices": given}, federation)


def of(one, client, cost=COST, t=0):
    """What a client took, by its fate."""
    fate = one.federation.faults.fate(t, client, STEPS)
    return one.times(t, client, cost, fate.steps, fate.arrives)


def test_three_clients_and_the_slowest_is_waited_for():
    """20 images of 50 FLOPs: 1000 FLOPs. fast: 2 + 1 + 2 s, slow: 20 + 10 + 20 s, far: 100 + 1 + 100 s."""
    one = clock()
    times = [of(one, n) for n in range(3)]
    assert [(each.down, each.compute, each.up) for each in times] == [(2, 1, 2), (20, 10, 20), (100, 1, 100)]
    row = one.row(times, [True] * 3)
    assert (row["duration"], row["server_seconds"]) == (201, 0)
    assert row["idle_share"] == pytest.approx(1 - (5 + 50 + 201) / (3 * 201))
    assert one.row(times[:2], [True, False])["duration"] == 50  # who sends nothing is missed when it is gone
    assert one.row(times[:1], [True])["idle_share"] == 0
    energy = [one.columns(0, n, COST, STEPS, True, False)["energy"] for n in range(3)]
    assert energy == [10, 20, None]  # watts times computing alone; nobody knows what the far one draws


def test_bf16_is_as_fast_as_the_device_is_in_it():
    assert [of(clock(precision="bf16"), n).compute for n in (0, 1)] == [0.25, 10]


def test_a_model_of_its_own_beside_takes_its_time():
    assert of(clock(), 0, replace(COST, personal_epochs=1)).compute == 3  # 40 images beside 20


def test_where_the_server_computes_along_clients_wait_and_it_is_one_machine():
    """10,000 FLOPs an image of 20 images for each: 20 s of the server, 60 s for all three."""
    along = ClientCost(50, 0, 0, 0, (Sent("features", up_per_image=10),), ServerCost(flops_per_image=10_000))
    one = clock(devices=(FAST,) * 3)
    times = [of(one, n, along) for n in range(3)]
    assert [tuple(each) for each in times] == [(0, 1, 4, 20)] * 3
    assert one.row(times[:1], [True])["duration"] == 25 and one.row(times, [True] * 3)["duration"] == 60
    assert one.row(times[:1], [True])["idle_share"] == 0.8


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
    times = of(one, 1)
    assert (times.down, times.compute, times.up) == expected
    assert times.total == sum(expected)


def test_who_drops_out_is_missed_at_once_and_a_late_one_at_its_deadline():
    """Steps of 2.5 s on the slow device: what was done before it dropped out, three times as slow, or the deadline."""
    one = clock({"dropout": 0.999, "stragglers": {**LATE, "late": "lost"}})
    seen = set()
    for t in range(30):
        fate = one.federation.faults.fate(t, 1, STEPS)
        if not fate.arrives:
            seen.add((fate.late, fate.steps, of(one, 1, t=t).compute))
    assert seen == {(False, 0, 0), (False, 1, 7.5), (True, 2, 20)}


def test_jitter_is_drawn_by_seed_round_and_client_for_processor_and_network():
    calm, wild = clock(), clock(jitter=0.5)
    factors = {}
    for t in range(40):
        for client in (0, 1):
            times = wild.times(t, client, COST, STEPS)
            base = calm.times(t, client, COST, STEPS)
            assert times.up / base.up == pytest.approx(times.down / base.down)
            factors[t, client] = (times.compute / base.compute, times.down / base.down)
    assert len({round(f, 9) for pair in factors.values() for f in pair}) == 160
    assert clock(jitter=0.5).times(3, 1, COST, STEPS) == wild.times(3, 1, COST, STEPS)
    assert clock(jitter=0.5, seed=1).times(3, 1, COST, STEPS) != wild.times(3, 1, COST, STEPS)
    assert clock(jitter=0.0).times(3, 1, COST, STEPS) == calm.times(0, 1, COST, STEPS)
    above = sum(f > 1 for pair in factors.values() for f in pair)
    assert 52 <= above <= 108  # the median is 1: 80 of 160, within four and a half standard deviations


def drawn(one, arrives=(True, True, True), leaves_out=()):
    """Who of three clients arrives, where the server waits for `one.wait_for`."""
    cohort = Cohort(
        [0, 1, 2], *(torch.full((3,), STEPS) for _ in range(3)), batches=None, arrives=torch.tensor(arrives)
    )
    one.federation.cohort = lambda t: cohort
    prices = [None if n in leaves_out else COST for n in range(3)]
    return one.cohort(0, SimpleNamespace(prices=lambda cohort, t: prices)).arrives.tolist()


def test_the_fastest_are_taken_and_the_others_have_computed_in_vain():
    assert drawn(clock()) == drawn(clock(wait_for=3)) == [True, True, True]
    assert drawn(clock(wait_for=2)) == [True, True, False] and drawn(clock(wait_for=1)) == [True, False, False]
    assert drawn(clock(wait_for=1), arrives=(False, True, True)) == [False, True, False]  # the fast one is lost
    assert drawn(clock(wait_for=2), arrives=(False, True, True)) == [False, True, True]
    assert drawn(clock(wait_for=1), leaves_out=(0,)) == [True, True, False]  # no part of the method's round
    assert drawn(clock(wait_for=1, devices=(FAST,) * 3)) == [True, False, False]
    one = clock(wait_for=2)
    times = [one.times(0, n, COST, STEPS, sent=n < 2) for n in range(3)]
    row = one.row(times, [True, True, False])
    assert (row["duration"], times[2].total) == (50, 101)
    assert row["idle_share"] == pytest.approx(1 - (5 + 50 + 50) / 150)  # the far one was busy until the end
    assert one.row(times, [True, False, False])["duration"] == 101  # too few: it waits for all


SUITE = """
suite: small
defaults:
  backbone: {name: vit_tiny_patch16_224, pretrained: false, img_size: 32, embed_dim: 48, depth: 2}
  adapter: {name: lora, rank: 2, alpha: 2}
  data: {name: strokes6, classes: 3, train_per_class: 3, test_per_class: 1}
  train: {rounds: 2, max_steps: 3, batch_size: 2}
  faults: {dropout: 0.2, stragglers: {probability: 0.5, slowdown: [1, 6], deadline: 1.2, late: partial}}
scenarios:
  one: {devices: [workstation, laptop, laptop, phone_low, phone_low, phone_low], device_jitter: 0.3, wait_for: 3}
methods: [fedra]
"""


def test_in_a_simulation_the_parts_are_the_whole(registry, tmp_path):
    (tmp_path / "small.yaml").write_text(SUITE)
    (cell,) = load(tmp_path / "small.yaml", registry).points()
    progress = Progress()
    Simulation(cell.config, registry).run(progress=progress)
    to_table("rounds", progress.tables["rounds"])
    to_table("clock", progress.tables["clock"])
    parts = ("down_seconds", "compute_seconds", "up_seconds", "server_seconds")
    assert len(progress.tables["clock"]) == 2
    for told in progress.tables["clock"]:
        rows = [row for row in progress.tables["rounds"] if row["round"] == told["round"]]
        took = [functools.reduce(operator.add, (row[name] for name in parts)) for row in rows]  # rounded at every step
        came = [seconds for seconds, row in zip(took, rows, strict=True) if row["arrived"]]
        assert len(came) <= 3 and len(rows) == told["clients"] == 6
        assert told["duration"] == max(came if len(came) == 3 else took) > 0
