"""A million registered clients, a hundred at work: what is planned, begun, computed and kept follows the sampled ones.

The ordinary suite counts calls and bytes at 1,000 and 10,000 clients; `tox -e bench` measures up to 1,000,000.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from spending import spent
from torch import nn

from fedbench.devices.assignment import Dealt
from fedbench.models.backbone import Source
from fedbench.registry.registry import Registry, dataset_of
from fedbench.runner.runner import load
from fedbench.seeding import numpy_generator
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.federated_data import FederatedData
from fedbench.simulation.saved_model import keep
from fedbench.simulation.simulation import Simulation
from fedbench.types import Clients, Size
from fedbench_plugins.partitions import by_domain, dirichlet, iid, pathological

SUITE = """
suite: crowd
defaults:
  backbone: BACKBONE
  adapter: {name: lora, rank: 8, alpha: 8, dropout: 0.0}
  data: {name: windows, examples: EXAMPLES, normalize: backbone, partition: {name: iid, clients: CLIENTS}}
  train: {rounds: ROUNDS, max_steps: 1, batch_size: 4}
scenarios:
  crowd: {participation: {count: SAMPLED}, SIZES}
methods: [fedra]
"""
WINDOWS = Path(__file__).with_name("windows_plugin.py")
SMALL = "{name: vit_tiny_patch16_224, pretrained: false, img_size: 32, embed_dim: 48, depth: 2}"
DEPTHS = "capacities: {uniform: [1, 2]}"
DEVICES = "devices: {shares: {workstation: 1, phone_low: 3}, jitter: 0.2, wait_for: 8}, fit: {seconds: 5}"
PER_CLIENT, IMAGE = 64, 8 + 1 + 16  # bytes of a client, and of an image: its place, its pixels here, label and domain
HALF = (0.5, 0.5, 0.5)
PARTITIONS = {
    "by_domain": lambda n: by_domain(n),
    "dirichlet": lambda n: dirichlet(100, n, min_examples=1),
    "iid": lambda n: iid(n),
    "pathological": lambda n: pathological(2, n),
}
STATUS = Path("/proc/self/status")  # knows the largest resident memory of this process alone


def write(folder: Path, clients: int, sampled: int, rounds: int, backbone: str, sizes: str = DEPTHS) -> Path:
    """A suite of one cell, 1.08 images a client."""
    given = {"EXAMPLES": clients * 108 // 100, "CLIENTS": clients, "SAMPLED": sampled, "ROUNDS": rounds, "SIZES": sizes}
    given["BACKBONE"] = backbone
    path = folder / f"crowd-{clients}-{rounds}.yaml"
    path.write_text(re.sub("|".join(given), lambda found: str(given[found[0]]), SUITE))
    return path


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


def on_disk(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_checkpoints_do_not_grow_with_the_registered(cells, tmp_path):
    checkpoint, state = kept_on_disk(*cells[DEPTHS, 1_000], tmp_path / "few")
    more, other = kept_on_disk(*cells[DEPTHS, 10_000], tmp_path / "many")
    assert more <= checkpoint + 2_000  # what parquet makes of longer numbers
    assert other <= state + 16 * 9_000 + 1_000  # of up to 10,000 clients two integers each, of more runs of equal ones


def in_a_fresh_process(folder: Path, clients: int) -> dict[str, float]:
    """What `inside` finds there. Not by multiprocessing, which leaves a process that `spent` would wait for."""
    given = f"pathlib.Path({str(folder)!r}), {clients}"
    words = f"import json, pathlib, test_million; print(json.dumps(test_million.inside({given})))"
    paths = os.pathsep.join([*map(str, (WINDOWS.parent, WINDOWS.parents[1])), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", words], env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def inside(folder: Path, clients: int) -> dict[str, float]:
    """Processor seconds of the parts of a cell of 100 sampled clients, its memory in bytes, and what it keeps."""
    torch.set_num_threads(1)
    registry = Registry([str(WINDOWS)])
    (cell,) = load(write(folder, clients, 100, 8, "micro_vit"), registry).points()
    before, clock = peak(), [time.process_time()]
    trial = Simulation(cell.config, registry)
    clock.append(time.process_time())
    trial.records.totals(trial.method, sum(trial.federated.sizes))
    clock.append(time.process_time())
    built, rounds = peak(), [time.process_time()]
    progress, place = Progress(), folder / f"kept-{clients}"
    trial.run(lambda t, rows: rounds.append(time.process_time()), progress=progress)
    Checkpoints(place, "crowd", "cpu").write(progress)
    checkpoint = on_disk(place)
    keep(place, trial)
    registered: Clients = trial.federation.clients
    arrays = sum(a.nbytes for a in (registered.domains, registered.starts, registered.sizes))
    return {
        "build": clock[1] - clock[0],
        "totals": clock[2] - clock[1],
        "first round": rounds[1] - rounds[0],
        "a round": min(after - one for one, after in zip(rounds[1:], rounds[2:], strict=False)),
        "grew": built - before,
        "peak": peak(),
        "arrays": arrays,
        "checkpoint": checkpoint,
        "state": on_disk(place) - checkpoint,
    }


def peak() -> int:
    return int(re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())[1]) * 1024


@pytest.mark.parametrize("clients", [10_000, 100_000, 1_000_000])
def test_a_crowd(benchmark, tmp_path, figures, clients):
    """The parts of a cell in a process of its own; then the whole commands, with an empty cache and one round."""
    if benchmark.disabled or not STATUS.exists():
        pytest.skip("measured by tox -e bench, where /proc is")
    found = benchmark.pedantic(lambda: in_a_fresh_process(tmp_path, clients), rounds=1)
    path, mib = write(tmp_path, clients, 100, 1, "micro_vit"), 2**20
    plan, again, run = (spent(tmp_path, word, path, "--plugin", WINDOWS) for word in ("plan", "plan", "run"))
    figures.add(f"crowd: {clients}", {**found, "plan": plan, "plan again": again, "run": run}, [
        f"{clients:,} clients, 100 sampled: built in {found['build']:.2f}, priced in {found['totals']:.2f}, "
        f"first round {found['first round']:.2f}, a round {found['a round']:.3f} processor seconds",
        f"  {found['grew'] / mib:.0f} MiB to build, peak {found['peak'] / mib:.0f} MiB, "
        f"{found['arrays'] / clients:.0f} bytes a client; checkpoint {found['checkpoint'] / mib:.2f} MiB, "
        f"state {found['state'] / mib:.2f} MiB",
        *(f"  {name}: {one['seconds']:.1f} s, {one['processor']:.1f} of processors, {one['mib']:.0f} MiB"
          for name, one in (("plan", plan), ("plan again", again), ("run of one round", run))),
    ])  # fmt: skip
    if clients == 1_000_000:  # by the clock it is less where both cores are free
        assert plan["processor"] + run["processor"] <= 60
