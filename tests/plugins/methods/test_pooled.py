"""Centralised training, as a cell runs it: on the images of all clients, by as many steps as all of them take."""

from __future__ import annotations

import numpy as np
import pytest
from every_method import ROUNDS, tiny_cells

from fedbench.simulation.federation import Federation
from fedbench.simulation.simulation import Simulation


@pytest.fixture(scope="module")
def config(plugins, tmp_path_factory):
    return tiny_cells(tmp_path_factory.mktemp("suite"), plugins)["plain", "pooled"]


@pytest.mark.parametrize("engine", ["cohort", "sequential"])
def test_a_cell_trains_on_the_pool_alone(config, plugins, monkeypatch, engine):
    drawn: list[list[int]] = []
    in_pool = Federation.in_pool

    def watched(federation, t):
        for positions in in_pool(federation, t):
            drawn.append(positions.tolist())
            yield positions

    monkeypatch.setattr(Federation, "in_pool", watched)
    simulation = Simulation({**config, "engine": engine}, plugins)
    monkeypatch.setattr(Federation, "in_order", None)  # whose batches are one client's
    _, rounds = simulation.run()
    steps = sum(row["steps"] for row in rounds)
    everybodys = set(np.concatenate([client.indices for client in simulation.federation.clients]).tolist())
    assert len(drawn) == steps >= ROUNDS and {n for batch in drawn for n in batch} <= everybodys
    domains = simulation.federation.pixels.labelled.domain
    assert set(domains[np.concatenate(drawn)]) == set(domains), "of every client, not of the last one"
