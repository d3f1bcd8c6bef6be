"""Many registered clients: what is built, planned, computed and kept follows the sampled ones, by calls and bytes."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from crowds import DEPTHS, DEVICES, SMALL, WINDOWS, on_disk, write
from torch import nn

from fedbench.devices.assignment import Dealt
from fedbench.models.backbone import Source
from fedbench.registry.registry import Registry, dataset_of
from fedbench.runner.runner import load
from fedbench.seeding import generator, numpy_generator
from fedbench.simulation.batches import Pixels
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.federated_data import FederatedData
from fedbench.simulation.saved_model import keep
from fedbench.simulation.simulation import Simulation
from fedbench.types import Size
from fedbench_plugins.partitions import by_domain, dirichlet, iid, pathological

PER_CLIENT, IMAGE = 64, 8 + 1 + 16  # bytes of a client, and of an image: its place, its pixels here, label and domain
HALF = (0.5, 0.5, 0.5)
PARTITIONS = {
    "by_domain": lambda n: by_domain(n),
    "dirichlet": lambda n: dirichlet(100, n, min_examples=1),
    "iid": lambda n: iid(n),
    "pathological": lambda n: pathological(2, n),
}


def calls(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile, Python's and C's, by Python."""
    counted = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """What is there already is not walked through whenever garbage is collected."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """By sizes and number of clients, the registry and the configuration of their cell."""
    registry, folder = Registry([str(WINDOWS)]), tmp_path_factory.mktemp("crowds")
    made = {}
    for sizes in (DEPTHS, DEVICES):
        for clients in (1_000, 10_000):
            (cell,) = load(write(folder, clients, 10, 2, SMALL, sizes), registry).points()
            made[sizes, clients] = registry, cell.config
    return made


@pytest.mark.parametrize("sizes", [DEPTHS, DEVICES])
def test_a_cell_is_built_planned_and_begun_by_as_many_calls_however_many_are_registered(cells, sizes):
    def of(clients: int) -> list[int]:
        registry, config = cells[sizes, clients]
        made: list[Simulation] = []
        built = calls(lambda: made.append(Simulation(config, registry)))
        (trial,) = made
        trial.records.totals(trial.method, sum(trial.federated.sizes))  # what is measured only once is measured now
        planned = calls(lambda: trial.records.totals(trial.method, sum(trial.federated.sizes)))
        return [built, planned, calls(lambda: trial.records.clocked.cohort(1, trial.method))]

    registry, config = cells[sizes, 1_000]
    assert Simulation(config, registry).records  # what is made only once is made now
    for few, many in zip(of(1_000), of(10_000), strict=True):
        assert many <= 1.05 * few


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_calls_nothing_once_a_client(name):
    def of(clients: int) -> int:
        y = np.arange(10 * clients) % 30
        deal = PARTITIONS[name](clients)
        return calls(lambda: deal(y, np.zeros_like(y), 1, numpy_generator(0)))

    of(100)
    assert of(10_000) <= 1.05 * of(1_000)


def test_a_round_reads_the_images_of_sampled_clients_alone(cells):
    registry, config = cells[DEPTHS, 1_000]
    trial, asked = Simulation(config, registry), []
    trial.federation.pixels = Counting(trial.federation.pixels, asked)
    trial.method.round(trial.method.init(generator(0)), 0, trial.federation.cohort(0), generator(0, 0))
    assert len(asked) == 10 and max(asked) <= 2


class Counting:
    """Pixels that note how many images they are asked for."""

    def __init__(self, pixels: Pixels, asked: list[int]) -> None:
        self.pixels, self.asked, self.size, self.labelled = pixels, asked, pixels.size, pixels.labelled
        self.augment = pixels.augment

    def __call__(self, indices: np.ndarray):
        self.asked.append(len(indices))
        return self.pixels(indices)


def test_registered_clients_are_a_few_integers_each(cells):
    def held(sizes: str, clients: int) -> int:
        registry, config = cells[sizes, clients]
        dataset, dealt = (
            dataset_of(config["data"], registry, 32),
            Dealt([Size(1, 2), Size(2, 4)], np.arange(clients) % 2),
        )
        tracemalloc.start()
        try:
            world = FederatedData(config, registry, dataset, 2, Source(nn.Identity(), 8, HALF, HALF, ""))
            kept = world.federation if sizes == DEPTHS else world.federation.with_sizes(dealt)
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            assert len(kept.clients) == clients
        finally:
            tracemalloc.stop()
        return size - IMAGE * config["data"]["examples"]

    for sizes in (DEPTHS, DEVICES):
        held(sizes, 1_000)
        assert (held(sizes, 10_000) - held(sizes, 1_000)) / 9_000 <= PER_CLIENT


def kept_on_disk(registry: Registry, config: dict, folder: Path) -> tuple[int, int]:
    """Bytes of a checkpoint and of the last state, after the rounds of a cell."""
    progress, trial, checkpoints = Progress(), Simulation(config, registry), Checkpoints(folder, "crowd", "cpu")
    trial.run(progress=progress)
    checkpoints.write(progress)
    checkpoint = on_disk(folder)
    keep(folder, trial)
    return checkpoint, on_disk(folder) - checkpoint


def test_checkpoints_do_not_grow_with_the_registered(cells, tmp_path):
    checkpoint, state = kept_on_disk(*cells[DEPTHS, 1_000], tmp_path / "few")
    more, other = kept_on_disk(*cells[DEPTHS, 10_000], tmp_path / "many")
    assert more <= checkpoint + 2_000  # what parquet makes of longer numbers
    assert other <= state + 16 * 9_000 + 1_000  # of up to 10,000 clients two integers each, of more runs of equal ones
