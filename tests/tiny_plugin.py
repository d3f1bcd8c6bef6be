"""A --plugin file for tests: 8x8 dots in two domains, a backbone of two blocks, and methods that go wrong on demand."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.types import Client, ClientCost, Dataset, Images, Splits

HALF = (0.5, 0.5, 0.5)


def dots(image_size: int, per_class: int = 2) -> Dataset:
    """Random dots, two classes in two domains."""

    def images(seed: int) -> Images:
        n = 4 * per_class
        x = np.random.default_rng(seed).integers(0, 255, (n, 3, image_size, image_size))
        return Images(x.astype(np.uint8), np.arange(n) % 2, np.arange(n) // (2 * per_class))

    return Dataset(("one", "two"), ("a", "b"), f"dots-{image_size}-{per_class}", lambda: Splits(images(0), images(1)))


def halves():
    """Two clients for each domain, which only the partition itself can tell."""

    def partition(y, domain, num_domains, generator):
        own = [np.flatnonzero((domain == d) & (y == half)) for d in range(num_domains) for half in (0, 1)]
        return [Client(i, i // 2, part) for i, part in enumerate(own)]

    return partition


def tiny(load: bool = True):
    """A timm ViT of two blocks for 8x8 images."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    from fedbench.models.backbone import Source

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = VisionTransformer(
            img_size=8, patch_size=4, embed_dim=8, depth=2, num_heads=2, mlp_ratio=1.0, num_classes=0
        )
    return Source(model=model, image_size=8, mean=HALF, std=HALF, fingerprint="tiny")


def odd(setup, how: str = "raise", until: str = ""):
    """FedRA whose first round does what `how` says, as long as no file `until` is there."""
    from fedbench.families.layerwise import layerwise

    if how == "not_applicable":
        raise NotApplicable("it has no meaning here")
    method = layerwise(setup)

    def round(state, t, cohort, generator):
        if until and os.path.exists(until):
            return method.round(state, t, cohort, generator)
        if how == "raise":
            raise RuntimeError("it broke")
        if how == "exit":
            os._exit(7)
        if how == "spawn":
            Path(until + ".pid").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        if how == "segfault":
            os.kill(os.getpid(), 11)
        if how == "diverge":
            state, report = method.round(state, t, cohort, generator)
            report.uploads.loss[0] = float("nan")
            return state, report
        return time.sleep(600)  # hang, spawn

    return replace(method, round=round)


def chained(setup, until: str = "", since: int = 0):
    """A method that trains nothing: its state is a hash over all rounds and what they drew, and a small tensor. With
    `until`, a round takes half a second, those before `since` apart, as long as there is no such file."""
    import torch

    from fedbench.method import Method
    from fedbench.types import Plan, Report, Uploads

    layers = setup.backbone.num_layers
    cost = ClientCost(flops_per_image=1, bytes_down=1, bytes_up=1, memory_bytes=1)

    def init(generator):
        return {"links": 0, "chain": "", "sum": torch.zeros(setup.num_classes, dtype=torch.float64)}

    def round(state, t, cohort, generator):
        if until and t >= since and not os.path.exists(until):
            time.sleep(0.5)
        drawn = torch.rand(setup.num_classes, generator=generator, dtype=torch.float64)
        link = f"{state['chain']} {t} {cohort.ids} {drawn.tolist()}"
        none = torch.zeros(len(cohort))
        up = Uploads.of(cohort, [{} for _ in range(layers)], {}, none + float(state["sum"].sum()), none)
        plan = Plan(torch.zeros(len(cohort), layers, dtype=torch.bool), [[] for _ in cohort.ids])
        new = {"links": t + 1, "chain": hashlib.sha256(link.encode()).hexdigest(), "sum": state["sum"] / 3 + drawn}
        return new, Report(plan, cohort, up, [cost] * len(cohort))

    def predictor(state, client=None):
        return lambda x: x.double().flatten(1)[:, : setup.num_classes] * state["sum"]

    return Method(init, round, predictor, lambda capacity, t: cost)


@hookimpl
def fedbench_register_datasets(register):
    register("dots", dots)


@hookimpl
def fedbench_register_partitions(register):
    register("halves", halves)


@hookimpl
def fedbench_register_backbones(register):
    register("tiny", tiny)


@hookimpl
def fedbench_register_methods(register):
    register("odd", odd)
    register("chained", chained)
