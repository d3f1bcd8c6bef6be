"""Rounds of tiny methods on a device of choice, and what it takes to compare them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator

import pytest
import torch
from engine.test_cohort import ADAPTERS, OTHERS, ragged

from fedbench.method import Method
from fedbench.seeding import generator
from fedbench.testing.setups import setup_of, tiny_vit
from fedbench.types import Cohort

DEVICE = "cuda"
REAL = torch.cuda.is_available()  # or else the pretended one stands in
# Methods that train without the engine, or leave it to nobody but the sequential one.
ALONE = {
    *("ditto", "fedavg", "fedrod", "fedrolex", "fedsa_lora", "fedv", "fedvz", "festa"),
    *("fjord", "heterofl", "local_only", "majority", "reefl", "splitlora", "zero_round"),
}
FEW = {"allsmall", "depthfl", "fedra"}  # methods that are tested on every GPU, the others by -m slow


def sampled(methods: Iterable[str], few: Collection[str]) -> list:
    """All methods as parameters, of which all but a few are slow tests."""
    return [name if name in few else pytest.param(name, marks=pytest.mark.slow) for name in methods]


def close(one, two, tolerance=1e-9):
    torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance, check_device=False)


def moved(cohort: Cohort, device: str, dtype: torch.dtype = torch.float64) -> Cohort:
    """The same round, its batches on a device."""

    def batches(n: int) -> Iterator:
        return ((x.to(device, dtype), y.to(device)) for x, y in cohort.batches(n))

    return dataclasses.replace(cohort, batches=batches)


def two_rounds(method: Method, cohort: Cohort) -> list:
    """The state after two rounds, and what clients sent."""
    state, sent = method.init(generator(0)), []
    for t in range(2):
        state, report = method.round(state, t, cohort, generator(0, t))
        sent.append([report.uploads.r, report.uploads.shared, report.uploads.loss])
    return [state["r"], state["shared"], state["scores"], sent]


def rounds(
    registry, engine, device: str, cohort: Cohort, adapter="plain", model=tiny_vit, ref="fedra", single=False, **train
) -> list:
    """single: in float32."""
    setup = setup_of(registry, model(), cohort.capacities.tolist(), (ADAPTERS | OTHERS)[adapter], **train)
    setup = dataclasses.replace(setup, engine=engine, device=device, by_client=True)
    method = registry.make("method", {"name": ref}, setup=setup)
    assert not method.alone
    if single:
        setup.backbone.float()
    return two_rounds(method, moved(cohort, device, torch.float32 if single else torch.float64))


def mixed(steps=(2, 1, 2, 1), sizes=(4, 4, 2)) -> Cohort:
    return ragged([4, 3, 3, 1], steps=list(steps), sizes=list(sizes))


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, whatever makes the CPU wait for the GPU raises RuntimeError."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
