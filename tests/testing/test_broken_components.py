"""The checks of components called from Python; test_found_faults.py has faults of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbench.families import aggregation
from fedbench.models.adapter import resolve_targets
from fedbench.testing import check_adapter, check_aggregator, check_allocation


def test_an_inexact_allocation_may_stay_below_and_never_above():
    check_allocation(lambda capacities, num_layers: torch.arange(num_layers) < capacities[:, None] - 1, exact=False)
    with pytest.raises(AssertionError, match="at most"):
        check_allocation(lambda capacities, num_layers: torch.ones(len(capacities), num_layers) > 0, exact=False)


def test_an_aggregator_that_weighs_what_was_lost_with_zero_is_found():
    """0 times no number is no number."""

    def weighs_with_zero(state, uploads, plan, cohort):
        if not uploads.arrived.any():
            return state
        examples = torch.where(uploads.arrived, cohort.num_examples, 0)
        everybody = replace(uploads, arrived=torch.ones_like(uploads.arrived))
        new = aggregation.weighted_mean(state, everybody, plan, replace(cohort, num_examples=examples))
        kept = [not (plan.M[:, j] & uploads.arrived).any() for j in range(plan.M.shape[1])]
        return {**new, "r": [state["r"][j] if kept[j] else r_j for j, r_j in enumerate(new["r"])]}

    with pytest.raises(AssertionError, match="rows that did not arrive"):
        check_aggregator(weighs_with_zero)


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
