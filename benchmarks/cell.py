"""One cell of the GPU script, timed: run as a user's would be, its images, rounds and aggregation all in the time."""

from __future__ import annotations

import copy
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import nn
from work import CLASSES, DEPTHS, DIM64, TINY, Work

from fedbench.models.backbone import Source
from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.simulation.simulation import Simulation
from fedbench.types import Dataset, Images, Splits

HALF = ((0.5,) * 3, (0.5,) * 3)
TABLE1 = ("alllarge", "allsmall", "inclusivefl", "depthfl", "fedra")
SUITE = """
suite: gpu
defaults:
  backbone: {name: micro_vit, pretrained: false}
  adapter: {name: lora, rank: 8, alpha: 8, dropout: 0, targets: [attn.proj, mlp.fc2]}
  data: {name: strokes6, classes: 3}
scenarios:
  unequal: {capacities: [12, 10, 8, 6, 4, 3]}
methods: [METHODS]
""".replace("METHODS", ", ".join(TABLE1))


@dataclass(frozen=True)
class Load:
    """One size of the work: a model, and for each client a depth, images a round and a batch size."""

    name: str
    vit: Callable[[], nn.Module]
    side: int
    images: int
    batch: int
    depths: tuple[int, ...] = DEPTHS
    tests: int = 1  # images of each client that the model is tested on


@functools.cache
def vit_base() -> nn.Module:
    return timm.create_model("vit_base_patch16_224", pretrained=False, num_classes=0)


def micro(work: Work, images: int) -> Load:
    return Load(work.name, work.backbone, 32, images, work.batch, work.depths)


@dataclass(frozen=True)
class Bench:
    """Where and how long things are measured. deadline: after it, nothing new is begun."""

    device: str
    tiny: bool
    deadline: float
    registry: Registry
    rates: dict[str, float]

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.deadline

    @property
    def large(self) -> Load:
        """ViT-B/16 at 224, eight batches of 128 for each client."""
        return micro(TINY, 4) if self.tiny else Load("ViT-B/16, 224", vit_base, 224, 1024, 128)

    @property
    def small(self) -> Load:
        return micro(TINY, 4) if self.tiny else micro(DIM64, DIM64.images)

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


class Enough(Exception):
    """Ends a trial before its last round."""


def measured(
    bench: Bench, size: Load, method: str = "fedra", precision: str = "bf16", engine: str = "cohort", rounds: int = 3
) -> dict[str, Any]:
    """Seconds a round (median of `rounds` after two), images per second, FLOPs and peak memory."""
    rounds, warm = (2, 1) if bench.tiny else (rounds, 2)
    stamps: list[float] = []
    losses: list[float] = []  # the last round's, so that engines can be compared

    def on_round(t: int, rows: list) -> None:
        bench.wait()
        stamps.append(time.perf_counter())
        losses[:] = [row["loss"] for row in rows]
        if bench.device == "cuda" and t == warm:
            torch.cuda.reset_peak_memory_stats()
        if t == warm + rounds or (bench.late and t > warm):
            raise Enough

    trial = built(bench, size, method, precision, engine, warm + rounds + 1)
    bench.wait()
    began = time.perf_counter()
    with suppress(Enough):
        trial.run(on_round)
    times = [after - before for before, after in zip(stamps[warm - 1 :], stamps[warm:], strict=False)]
    images, flops = work_of(trial)
    seconds = statistics.median(times)
    facts = {
        "method": method, "precision": precision, "engine": engine, "seconds_a_round": seconds, "rounds": times,
        "first_round": stamps[0] - began, "images_a_round": images, "images_per_second": images / seconds,
        "flops_a_round": flops, "loss": statistics.mean(losses),
        "mfu": flops / seconds / bench.rates[precision] if bench.rates else None,
    }  # fmt: skip
    if bench.device == "cuda":
        facts["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return facts


def built(bench: Bench, size: Load, method: str, precision: str, engine: str, rounds: int) -> Simulation:
    config = copy.deepcopy(configs(bench.registry)[method])
    config["train"] |= {"rounds": rounds, "local_epochs": 1, "max_steps": None, "batch_size": size.batch}
    config["evaluation"] |= {"every": rounds}
    config |= {
        "backbone": {"name": size.name},
        "capacities": {"by_client": list(size.depths)},
        "precision": precision,
        "engine": engine,
    }
    source = Source(copy.deepcopy(size.vit()), size.side, *HALF, fingerprint="drawn")
    return Simulation(
        config, bench.registry, bench.device, source, dataset(size.side, size.images, len(size.depths), size.tests)
    )


@functools.cache
def configs(registry: Registry) -> dict[str, dict[str, Any]]:
    """The resolved configuration of every method."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.yaml"
        path.write_text(SUITE)
        return {cell.method: json.loads(json.dumps(cell.config)) for cell in load(path, registry).points()}


@functools.lru_cache(maxsize=1)
def dataset(side: int, images: int, clients: int, tests: int = 1) -> Dataset:
    """Random images, so many for each client to train and to test, whose domain is its own."""
    draw = np.random.default_rng(0)

    def split(each: int) -> Images:
        n = each * clients
        x = draw.integers(0, 256, (n, 3, side, side), np.uint8)
        return Images(x, draw.integers(0, CLASSES, n), np.repeat(np.arange(clients), each))

    splits = Splits(split(images), split(tests))
    names = (tuple(f"{what}{i}" for i in range(n)) for what, n in (("domain", clients), ("class", CLASSES)))
    return Dataset(*names, fingerprint="random", load=lambda: splits)


def work_of(trial: Simulation) -> tuple[int, int]:
    """Images of a round, and the FLOPs of their forward and backward passes as `fedbench.models.cost` counts them."""
    now = trial.federation.cohort(0)
    prices = [trial.method.cost(int(L_n), 0) for L_n in now.capacities]
    sizes = [trial.federation.images(n, int(steps)) for n, steps in zip(now.ids, now.steps, strict=True)]
    taking_part = [(n, price) for n, price in zip(sizes, prices, strict=True) if price is not None]
    return sum(n for n, _ in taking_part), sum(n * price.flops_per_image for n, price in taking_part)
