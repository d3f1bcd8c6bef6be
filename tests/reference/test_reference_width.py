"""Three rounds of the methods of unequal width in float64 against plain loops, see width_loops.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from width_loops import (
    CLASSES,
    EXAMPLES,
    GROUPS,
    K1,
    K2,
    ROUNDS,
    STEPS,
    TRAIN,
    WIDTHS,
    batches_of,
    firsts,
    ordered,
    sliced,
    windows,
)

from fedbench.seeding import generator
from fedbench.testing.setups import setup_of
from fedbench.types import Cohort

pytestmark = pytest.mark.usefixtures("counted_once")


class Net(nn.Module):
    num_features = K2

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.one, self.two = nn.Conv2d(3, K1, 3, bias=False), nn.Conv2d(K1, K2, 3, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, K1), nn.GroupNorm(GROUPS, K2)

    def forward(self, x):
        z = self.norm2(self.two(self.norm1(self.one(x)).relu())).relu()
        return z.mean((2, 3))


SHORT = {
    "model.one.weight": "W",
    "model.norm1.weight": "s",
    "model.norm1.bias": "b",
    "model.two.weight": "V",
    "model.norm2.weight": "q",
    "model.norm2.bias": "d",
    "head.weight": "U",
    "head.bias": "c",
}


def plain(tensors):
    return {SHORT[name]: value.clone() for name, value in tensors.items()}


def cohort_of_round(t):
    ids = ROUNDS[t]
    numbers = [torch.tensor([own[i] for i in ids]) for own in (dict.fromkeys(ids, 1), EXAMPLES, STEPS)]
    widths = torch.tensor([WIDTHS[i] for i in ids], dtype=torch.float64)
    return Cohort(ids, *numbers, lambda n: iter(batches_of(t, ids[n])), widths=widths)


@pytest.fixture
def ran(registry):
    """ran(method) -> the first weights, the last ones, and the losses."""

    def run(**ref):
        setup = setup_of(registry, Net(), [1] * len(EXAMPLES), **TRAIN)
        widths = np.array([[width, width] for width in WIDTHS.values()])
        setup = replace(setup, scenario=replace(setup.scenario, widths=widths))
        method = registry.make("method", ref, setup=setup)
        state = method.init(generator(0))
        assert setup.num_classes == CLASSES
        first, losses = plain(state["shared"]), []
        for t in range(len(ROUNDS)):
            state, report = method.round(state, t, cohort_of_round(t), generator(0, t))
            losses.append(report.uploads.loss.tolist())
        return first, plain(state["shared"]), losses

    return run


def alike(last, losses, w, told):
    for name, value in w.items():
        torch.testing.assert_close(last[name], value, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")
    np.testing.assert_allclose(np.concatenate(losses), np.concatenate(told), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "choose", "options"),
    [("heterofl", firsts, {}), ("heterofl", firsts, {"scale": False}), ("fedrolex", windows, {"mask": False})],
)
def test_slices_averaged_by_coordinate(ran, name, choose, options):
    first, last, losses = ran(name=name, **options)
    alike(last, losses, *sliced(first, choose, **options, rates=(1, 0.5, 0.25)))


@pytest.mark.parametrize("distill", [False, True])
def test_fjord(ran, distill):
    def drawn(t, client, choices):
        draw = generator(0, t, client, "width")
        return [int(torch.randint(choices, (), generator=draw)) for _ in range(STEPS[client])]

    first, last, losses = ran(name="fjord", rates=[0.25, 0.5, 1], distill=distill)
    alike(last, losses, *ordered(first, drawn, distill))
