"""What is noticed of others' components in a cell: chance in any call, and whose it was."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from command import TINY, write_suite

from fedbench.cell import chance
from fedbench.cell.chance import drawn, moved
from fedbench.cell.trial import Trial
from fedbench.registry.registry import Registry
from fedbench.runs.runner import load

STRANGE = """
import itertools, random
import numpy as np
import torch
from torch import nn
from fedbench import hookimpl
from fedbench.families.layerwise import layerwise
from fedbench.models.adapter import resolve_targets

def loss(exits, y, t):
    return nn.functional.cross_entropy(exits[0], y)

def quiet():
    torch.rand(3)  # what is drawn before it is ever called is nobody's result
    return loss

def late():
    calls = itertools.count()
    def objective(exits, y, t):
        if next(calls) == 5:
            random.random()
        return loss(exits, y, t)
    return objective

class Noisy(nn.Module):
    def __init__(self, frozen, noise):
        super().__init__()
        self.frozen, self.noise = frozen, noise
        self.s = nn.Parameter(torch.randn(frozen.out_features))

    def draw(self, generator):
        nn.init.ones_(self.s)

    def forward(self, x):
        y = self.frozen(x) * self.s
        return torch.dropout(y, 0.5, True) if self.noise and not x.is_meta else y

def scaled(noise: bool = False):
    def attach(blocks):
        for parent, attribute in resolve_targets(blocks, "last_fc"):
            setattr(parent, attribute, Noisy(getattr(parent, attribute), noise))
    return attach

def own(setup):
    return layerwise(setup, "random")

@hookimpl
def fedbench_register_objectives(register):
    register("quiet", quiet)
    register("late", late)

@hookimpl
def fedbench_register_adapters(register):
    register("scaled", scaled)

@hookimpl
def fedbench_register_methods(register):
    register("own", own)
"""
METHOD = "{{name: tried, extends: fedra, objective: {}}}"
LORA = "{name: lora, rank: 2, alpha: 2, dropout: 0.0}"
NOISY, QUIET = {LORA: "{name: scaled, noise: true}"}, {LORA: "scaled"}
OBJECTIVE = "the objective 'late' of strange.py draws from a global generator (of Python)"
ADAPTER = "the adapter 'scaled' of strange.py, or the backbone 'tiny' of tiny_plugin.py, draws from a global generator"


@pytest.mark.parametrize(
    ("method", "changes", "told"),
    [
        (METHOD.format("quiet"), QUIET, []),
        (METHOD.format("late"), QUIET, [OBJECTIVE]),
        ("fedra", NOISY, [ADAPTER]),
        ("own", NOISY, [f"the method 'own' of strange.py, or {ADAPTER}"]),
        (METHOD.format("late"), NOISY, [OBJECTIVE, ADAPTER]),
    ],
    ids=["nobody", "one call of a step", "an adapter", "one of two", "each its own"],
)
def test_every_call_is_watched_and_whoever_draws_is_named(method, changes, told, tmp_path):
    (tmp_path / "strange.py").write_text(STRANGE)
    registry = Registry([str(TINY), str(tmp_path / "strange.py")])
    (cell,) = load(write_suite(tmp_path, method, {**changes, "max_steps: 1": "max_steps: 2"}), registry).points()
    trial = Trial(cell.config, registry)
    trial.run()
    warnings = trial.watched.warnings
    assert len(warnings) == len(told), warnings
    for one, expected in zip(sorted(warnings, key=len), told, strict=True):
        assert one.startswith(expected) and "fedbench plugins check strange.py" in one


@pytest.mark.parametrize(
    ("draw", "whose"),
    [
        (lambda: torch.rand(1), "torch"),
        (lambda: torch.manual_seed(4), "torch"),
        (lambda: np.random.rand(), "NumPy"),
        (lambda: np.random.seed(4), "NumPy"),
        (lambda: random.random(), "Python"),
        (lambda: random.seed(4), "Python"),
        (lambda: [random.gauss() for _ in range(2)], "Python"),
        (lambda: [random.getrandbits(32) for _ in range(624)], "Python"),  # the index is back where it was
    ],
)
@pytest.mark.parametrize("open_", [True, False])
def test_every_draw_shows(draw, whose, open_, monkeypatch):
    assert chance._lie_open()  # or nothing of Python's generator is cheap here
    monkeypatch.setattr(chance, "_lie_open", lambda: open_)
    before = drawn()
    assert not moved(before) and drawn() == before
    draw()
    assert moved(before) == [whose]


def test_another_generator_of_numpys_is_watched_as_well():
    own = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        before = drawn()
        assert not moved(before)
        np.random.rand()
        assert moved(before) == ["NumPy"]
    finally:
        np.random.set_bit_generator(own)
