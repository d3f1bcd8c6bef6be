"""fedbench/testing/function_check.py against examples that break the contract of each kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbench.families import aggregation, allocation
from fedbench.models.adapter import resolve_targets
from fedbench.models.backbone import Source
from fedbench.testing import (
    check_adapter,
    check_aggregator,
    check_allocation,
    check_backbone,
    check_dataset,
    check_metric,
    check_objective,
    check_partition,
    tiny_vit,
)
from fedbench.types import MIXED, Client, Dataset, Images, Splits
from fedbench_plugins import objectives


def one_too_few(capacities, num_layers):
    return torch.arange(num_layers) < capacities[:, None] - 1


def global_chance(capacities, num_layers):
    return allocation.random(capacities, num_layers, torch.default_generator)


def forgetful(capacities, num_layers, calls=[]):  # noqa: B006  (the fault that is looked for)
    calls.append(1)
    return allocation.prefix(capacities, num_layers).roll(len(calls), 1)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (one_too_few, "its capacity is"),
        (global_chance, "global generator|when called again"),
        (forgetful, "when called again"),
        (lambda capacities, num_layers: capacities, "bool tensor"),
        (lambda capacities: torch.ones(len(capacities), 1, dtype=torch.bool), "must give 6 columns"),
    ],
)
def test_broken_allocations(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_allocation(broken)


def test_an_inexact_allocation_may_stay_below():
    check_allocation(one_too_few, exact=False)
    with pytest.raises(AssertionError, match="at most"):
        check_allocation(lambda capacities, num_layers: torch.ones(len(capacities), num_layers) > 0, exact=False)


def zero_the_unheld(state, uploads, plan, cohort):
    new = aggregation.weighted_mean(state, uploads, plan, cohort)
    held = plan.M.any(0)
    r = [{name: value * held[j] for name, value in r_j.items()} for j, r_j in enumerate(new["r"])]
    return {**new, "r": r}


def in_place(state, uploads, plan, cohort):
    state["shared"]["head.weight"].mul_(0.5)
    return aggregation.weighted_mean(state, uploads, plan, cohort)


def ignores_arrived(state, uploads, plan, cohort):
    everybody = replace(uploads, arrived=torch.ones_like(uploads.arrived))
    return aggregation.weighted_mean(state, everybody, plan, cohort)


def drops_shared(state, uploads, plan, cohort):
    return {"r": state["r"]}


def weighs_with_zero(state, uploads, plan, cohort):
    """Multiplies what was lost by 0 where it should not be touched: 0 times no number is no number."""
    if not uploads.arrived.any():
        return state
    examples = torch.where(uploads.arrived, cohort.num_examples, 0)
    everybody = replace(uploads, arrived=torch.ones_like(uploads.arrived))
    new = aggregation.weighted_mean(state, everybody, plan, replace(cohort, num_examples=examples))
    kept = [not (plan.M[:, j] & uploads.arrived).any() for j in range(plan.M.shape[1])]
    return {**new, "r": [state["r"][j] if kept[j] else r_j for j, r_j in enumerate(new["r"])]}


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (zero_the_unheld, "layer 2 came back from nobody"),
        (in_place, "changes what it is given"),
        (ignores_arrived, "rows that did not arrive"),
        (weighs_with_zero, "rows that did not arrive"),
        (drops_shared, "whole state"),
    ],
)
def test_broken_aggregators(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_aggregator(broken)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda exits, y, t: objectives.cross_entropy(exits, y, t).detach().requires_grad_(), "no gradient"),
        (lambda exits, y, t: exits[0].sum(1), "scalar"),
        (lambda exits, y, t: exits[0].sum() / t, "round 0 is"),
    ],
)
def test_broken_objectives(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_objective(broken)


def thaws(blocks):
    blocks.model.requires_grad_(True)


@pytest.mark.parametrize(("broken", "told"), [(thaws, "thaws"), (lambda blocks: None, "adds nothing")])
def test_broken_adapters(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_adapter(broken)


class Frozen(torch.nn.Module):
    """b * (x V) beside a frozen layer, b trained and V as it is given (VeRA's way)."""

    def __init__(self, frozen, V):
        super().__init__()
        self.frozen, self.b = frozen, torch.nn.Parameter(torch.zeros(frozen.out_features))
        self.register_buffer("V", V)

    def draw(self, generator):
        torch.nn.init.zeros_(self.b)

    def forward(self, x):
        return self.frozen(x) + (x @ self.V) * self.b


def beside(draw):
    def attach(blocks):
        for parent, name in resolve_targets(blocks, "last_fc"):
            layer = getattr(parent, name)
            setattr(parent, name, Frozen(layer, draw(layer.in_features, layer.out_features)))

    return attach


def test_frozen_numbers_of_an_adapter_come_from_torch_which_is_seeded_there():
    """Nobody trains them and no state has them: drawn elsewhere, a run that goes on would have others."""
    check_adapter(beside(torch.randn))
    with pytest.raises(AssertionError, match=r"attn.proj.V is frozen, and another .* same seed: draw it from torch's"):
        check_adapter(beside(lambda *shape: torch.from_numpy(np.random.randn(*shape)).float()))


def test_a_broken_backbone():
    with pytest.raises(AssertionError, match="three numbers"):
        check_backbone(Source(tiny_vit(), 8, (0.5, 0.5, 0.5), (0.0, 1.0, 1.0), "x"))


def data(**changes) -> Dataset:
    def images(shade):
        x, y = np.full((4, 3, 8, 8), shade, dtype=np.uint8), np.array([0, 1, 0, 1])
        return replace(Images(x, y, np.array([0, 0, 1, 1])), **changes)

    return Dataset(("one", "two"), ("a", "b"), "f", lambda: Splits(images(0), images(1)))


def test_a_sound_data_set_passes():
    check_dataset(data())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"x": np.zeros((4, 8, 8, 3), dtype=np.uint8)}, "uint8"),
        ({"x": np.zeros((4, 3, 8, 8))}, "uint8"),
        ({"y": np.array([0, 1, 2, 1])}, "between 0 and 1"),
        ({"y": np.array([0, 1, 0, 1], dtype=np.int32)}, "int64"),
        ({"domain": np.array([0, 0, 0, 0])}, "no image of domain 'two'"),
    ],
)
def test_broken_data_sets(changes, told):
    with pytest.raises(AssertionError, match=told):
        check_dataset(data(**changes))


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda y, domain, n, generator: [Client(0, 0, np.arange(len(y)))], "another domain"),
        (lambda y, domain, n, generator: [Client(i, 0, np.arange(9)) for i in range(2)], "image 0 is dealt 2 times"),
        (lambda y, domain, n, generator: [Client(1, 0, np.arange(9))], "ids must be"),
        (lambda y, domain, n, generator: [Client(0, 0, np.random.permutation(9))], "global|otherwise"),
        (lambda y, domain, n, generator: [Client(0, MIXED, np.flatnonzero(domain == 1))], "client 0 of domain -1"),
    ],
)
def test_broken_partitions(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_partition(broken)


def test_a_broken_metric():
    with pytest.raises(AssertionError, match="is nan"):
        check_metric(lambda logits, y: float("nan"))
