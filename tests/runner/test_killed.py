"""Cells killed by SIGKILL and run again until they are done: what they end with is what an uninterrupted one has."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count

import pytest
from kills import Toll, kill_until_done, killed_before_write, moved, order_of, said

from fedbench.simulation import worker

ROUNDS = 25


@pytest.fixture(scope="module")
def chained(tmp_path_factory, own_cache):
    """The order of a cell whose rounds take next to no time, and what it says when nobody disturbs it."""
    order = order_of(tmp_path_factory.mktemp("whole"), "chained", ROUNDS)
    worker.run(replace(order, checkpoint_every=1e9))
    return order, said(order.folder)


def killed(chained, folder, kills, seed=0):
    """Cell after cell, until there were so many kills."""
    (order, whole), toll, draw = chained, Toll(), random.Random(seed)
    while toll.kills < kills:
        one = moved(order, folder / str(toll.cells))
        kill_until_done(one, draw, 0.4, toll, kills)
        assert said(one.folder) == whole
    return toll


def test_a_few_kills_at_random_instants(chained, tmp_path):
    assert killed(chained, tmp_path, 4).kills == 4


@pytest.mark.slow
def test_fifty_kills_at_random_instants(chained, tmp_path):
    toll = killed(chained, tmp_path, 50)
    print(toll)
    assert toll.amid_writes > 0


@pytest.mark.slow
def test_a_few_kills_of_a_cell_that_two_processes_train(tmp_path):
    changes = {"dropout: 0.0": "dropout: 0.1", "max_steps: 1": "max_steps: 2", "momentum: 0.0": "momentum: 0.9"}
    order = order_of(tmp_path / "whole", "fedra", 12, processes=2, changes=changes)
    worker.run(replace(order, checkpoint_every=1e9))
    killed((order, said(order.folder)), tmp_path, 4)


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_before_any_of_the_changes_on_disk(tmp_path, every):
    """Two rounds, and a checkpoint between them: a kill before the first change, before the second, ...; before every
    eleventh of them where time is short."""
    order = order_of(tmp_path / "whole", "chained", 2)
    worker.run(order)
    for number in count(step=every):
        one = moved(order, tmp_path / str(number))
        if not killed_before_write(one, number):
            break
        worker.run(one)
        assert said(one.folder) == said(order.folder), number
    print(f"{number} changes")
    assert number > 30


@pytest.mark.slow
def test_a_thousand_kills_at_random_instants(chained, tmp_path):
    toll = killed(chained, tmp_path, 1000, seed=1)
    print(toll)
    assert toll.amid_writes > 50
