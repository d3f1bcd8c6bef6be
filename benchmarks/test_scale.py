"""Ten thousand registered clients, a hundred at work: memory follows the examples, time follows who is sampled.

`tests/simulation/test_registered_clients.py` counts images and bytes.
"""

from __future__ import annotations

import functools
import gc
import re
import tempfile
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.seeding import generator, numpy_generator
from fedbench.simulation.batches import Pixels
from fedbench.simulation.federation import Federation
from fedbench.simulation.simulation import Simulation
from fedbench.types import Dataset, Images, Splits

SUITE = """
suite: scale
defaults:
  backbone: micro_vit
  adapter: {name: lora, rank: 8, alpha: 8, dropout: 0.0}
  data: {name: strokes6, image_size: 32, normalize: backbone, partition: {name: by_domain}}
  train: {rounds: 2, max_steps: 1, batch_size: 4}
scenarios:
  many: {capacities: {uniform: [6, 6]}, participation: {count: 10}}
methods: [fedra]
"""
CLASSES = 30
PER_CLIENT = 48  # bytes: two integers, and what its capacities take
STATUS = Path("/proc/self/status")  # knows the largest resident memory of this process alone


@functools.cache
def config(registry: Registry, clients: int, sampled: int) -> dict:
    """The cell with so many registered clients, all in one domain."""
    sets = [f"data.partition.clients_per_domain={clients}", f"participation.count={sampled}"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scale.yaml")
        path.write_text(SUITE)
        (cell,) = load(path, registry, sets=sets).points()
    return cell.config


@functools.cache
def noise(examples: int) -> Dataset:
    """A data set of one domain whose images are uint8 noise, in memory."""
    draw = np.random.default_rng(0)

    def images(n: int) -> Images:
        x = draw.integers(256, size=(n, 3, 32, 32), dtype=np.uint8)
        return Images(x, draw.integers(CLASSES, size=n), np.zeros(n, dtype=np.int64))

    splits = Splits(images(examples), images(CLASSES))
    return Dataset(("noise",), tuple(map(str, range(CLASSES))), "noise", lambda: splits)


def federation(registry: Registry, clients: int, examples: int) -> Federation:
    """The registered clients and their scenario, without a model."""
    settings = config(registry, clients, 10)
    train = noise(examples).load().train
    partition = registry.make("partition", settings["data"]["partition"])
    dealt = partition(train.y, train.domain, 1, numpy_generator(0))
    return Federation(settings, dealt, 12, Pixels(train, (0.5,) * 3, (0.5,) * 3, "cpu"))


def held(registry: Registry, clients: int, examples: int) -> int:
    """Bytes that stay allocated for registered clients; the images themselves are not among them."""
    federation(registry, clients, examples)  # what is made only once is made now
    gc.collect()
    gc.freeze()  # what other tests have left is looked through once
    tracemalloc.start()
    try:
        kept = federation(registry, clients, examples)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        assert len(kept.clients) == clients
    finally:
        tracemalloc.stop()
    return size


def one_round(trial: Simulation, t: int = 0) -> list[dict]:
    """Round t from the first state: sampling, training, averaging, and its rows."""
    cohort = trial.federation.cohort(t)
    state = trial.method.init(generator(0, use="init"))
    _, report = trial.method.round(state, t, cohort, generator(0, t, use="round"))
    return trial.records.rounds(t, report)


def test_memory_is_flat_in_registered_clients(benchmark, registry, figures):
    """Same examples, same work of a hundred sampled clients; each number of registered ones in a fresh process."""
    skip_unless_measured(benchmark)
    if not STATUS.exists():
        pytest.skip("the largest resident memory is read from /proc")
    numbers = (100, 1_000, 10_000)
    benchmark.pedantic(lambda: peak_in_a_fresh_process(100, 40_000), rounds=1)
    peaks = {n: [peak_in_a_fresh_process(n, 40_000) for _ in range(3)] for n in numbers}
    sizes = {n: held(registry, n, 40_000) for n in numbers}
    each = (sizes[10_000] - sizes[100]) / 9_900
    benchmark.extra_info.update(peak_bytes=peaks, held_bytes=sizes, bytes_per_client=each)
    lines = [f"{n:>7,}   {min(peaks[n]) / 2**20:8.1f}   {sizes[n] / 2**20:8.2f}" for n in numbers]
    title = "registered clients, 40,000 examples, 100 sampled: peak MiB (least of 3), MiB of clients and scenario"
    figures.add("memory", dict(benchmark.extra_info), [title, *lines, f"{each:.0f} bytes a registered client"])
    assert each <= PER_CLIENT
    assert min(peaks[10_000]) - min(peaks[100]) <= 0.02 * min(peaks[100])


def peak_in_a_fresh_process(clients: int, examples: int) -> int:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(peak, clients, examples).result()


def peak(clients: int, examples: int) -> int:
    """Largest resident memory, in bytes, of a process that runs two rounds of 100 clients."""
    torch.set_num_threads(1)
    registry = Registry()
    _, rows = Simulation(config(registry, clients, 100), registry, dataset=noise(examples)).run()
    assert [row["steps"] for row in rows] == [1] * 200
    return int(re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())[1]) * 1024


def test_time_is_linear_in_sampled_clients(benchmark, registry, figures):
    """Ten thousand registered, four examples each; processor seconds of a round, least of seven."""
    skip_unless_measured(benchmark)
    numbers = (25, 50, 100, 200)
    trials = {n: Simulation(config(registry, 10_000, n), registry, dataset=noise(40_000)) for n in numbers}
    seconds = {n: [] for n in numbers}

    def one_pass() -> None:
        for n, trial in trials.items():
            began = time.process_time()
            assert len(one_round(trial)) == n
            seconds[n].append(time.process_time() - began)

    benchmark.pedantic(one_pass, rounds=7, warmup_rounds=1)
    least = {n: min(own[1:]) for n, own in seconds.items()}
    each = {n: least[n] / n for n in numbers}
    slope, intercept = np.polyfit(numbers, list(least.values()), 1)
    benchmark.extra_info.update(seconds=least, per_client=each, slope=slope, intercept=intercept)
    lines = [f"{n:>7,}   {least[n]:8.3f}   {each[n] * 1e3:8.2f}" for n in numbers]
    title = "sampled clients of 10,000: processor seconds a round (least of 7), ms a sampled client"
    fit = f"fit: {slope * 1e3:.2f} ms a client and {intercept * 1e3:.1f} ms a round"
    figures.add("time", dict(benchmark.extra_info), [title, *lines, fit])
    assert max(each.values()) <= 1.25 * min(each.values())


def skip_unless_measured(benchmark) -> None:
    if benchmark.disabled:
        pytest.skip("only measured with --benchmark-enable")
