"""What an aggregator and an objective may return, and a word for whatever else they do."""

from __future__ import annotations

import pytest
import torch

from fedbench.simulation.failure_reason import (
    PluginFault,
    checked_metric,
    fault_of_loss,
    fault_of_round,
    fault_of_state,
)
from fedbench.types import SummedMetric
from fedbench.types.metric import measured

STATE = {"r": [{"A": torch.ones(2, 3)}, {"A": torch.ones(2, 3)}], "shared": {"head": torch.ones(4)}, "memory": {}}


def changed(**layer):
    return {**STATE, "r": [layer, STATE["r"][1]]}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "it returned NoneType instead of a state"),
        ([STATE], "it returned list instead of a state"),
        ({"r": STATE["r"]}, "a state without 'shared': begin with dict(state)"),
        ({**STATE, "r": STATE["r"][:1]}, "a dict of tensors for each of 2 layers"),
        ({**STATE, "r": {"A": torch.ones(2, 3)}}, "in another layout"),
        ({**STATE, "shared": torch.ones(4)}, "in another layout"),
        (changed(B=torch.ones(2, 3)), "without r/0/A, which it was given"),
        (changed(A=torch.ones(2, 3), B=torch.ones(1)), "with r/0/B, which it was not given"),
        (changed(A=torch.ones(3, 2)), "Tensor torch.float32 (3, 2) for r/0/A, where Tensor torch.float32 (2, 3)"),
        (changed(A=torch.ones(2, 3).double()), "Tensor torch.float64 (2, 3) for r/0/A, where Tensor torch.float32"),
        (changed(A=1.5), "it returned float for r/0/A"),
    ],
)
def test_a_state_of_another_kind_is_told(made, told):
    assert told in fault_of_state(STATE, made)


@pytest.mark.parametrize(
    "made",
    [
        STATE,
        changed(A=torch.zeros(2, 3)),
        changed(A=torch.nn.Parameter(torch.zeros(2, 3))),
        {**STATE, "memory": {"t": 1}, "frozen": {}},
    ],
)
def test_other_numbers_and_what_an_aggregator_remembers_are_its_own(made):
    assert fault_of_state(STATE, made) == ""


def test_a_method_may_have_a_layout_of_its_own():
    assert fault_of_state({"w": torch.ones(3)}, {"w": torch.ones(2)}) == ""
    assert "it returned NoneType" in fault_of_state({"w": torch.ones(3)}, None)


def test_nothing_in_layers_is_a_state_too():
    whole = {"r": [], "shared": {"w": torch.ones(3)}}
    assert fault_of_state(whole, {**whole, "memory": {}}) == ""


@pytest.mark.parametrize("made", [None, STATE, (STATE,), (STATE, None), (None, None), [STATE, None]])
def test_a_round_is_a_state_and_a_report(made):
    assert fault_of_round(made).startswith("a round returns (state, Report), not ")


def test_a_loss_is_one_number_with_a_gradient():
    exits = [torch.ones(4, 3, requires_grad=True)]
    assert "must be a scalar tensor, not Tensor torch.float32 (4,)" in fault_of_loss(exits, exits[0].sum(1))
    assert "not float; take a mean" in fault_of_loss(exits, 3.0)
    assert "no gradient" in fault_of_loss(exits, torch.tensor(1.0))
    assert fault_of_loss(exits, exits[0].mean()) == ""
    assert fault_of_loss([exits[0].detach()], torch.tensor(1.0)) == ""  # of a test, which needs none
    with torch.no_grad():
        assert fault_of_loss(exits, torch.tensor(1.0)) == ""


def test_a_loss_that_torch_maps_over_clients_is_one_number_too():
    faults = []

    def objective(logits):
        loss = logits.square().mean()
        faults.append(fault_of_loss([logits], loss))
        return loss

    torch.func.vmap(objective)(torch.ones(2, 4, 3, requires_grad=True)).sum().backward()
    assert faults == [""]


def test_a_metric_changes_no_logits_of_another_and_returns_one_number(registry):
    component = registry.catalogue.find("metric", "accuracy")
    logits, y = torch.ones(4, 2), torch.zeros(4)
    assert checked_metric(component, lambda logits, y: float(logits.neg_().sum() + y.add_(1).sum()))(logits, y) == -4
    assert torch.equal(logits, torch.ones(4, 2)) and torch.equal(y, torch.zeros(4))
    with pytest.raises(PluginFault, match="a metric returns one number, not Tensor"):
        checked_metric(component, lambda logits, y: logits.sum(1))(logits, y)


def test_a_metric_of_sums_stays_one_and_returns_one_number(registry):
    component = registry.catalogue.find("metric", "accuracy")
    logits, y = torch.ones(4, 2), torch.zeros(4)
    made = checked_metric(component, SummedMetric(lambda logits, y: logits.neg_().sum(0), lambda sums: sums[0]))
    assert measured(made, [(logits, y), (logits, y)]) == -8 and torch.equal(logits, torch.ones(4, 2))
    with pytest.raises(PluginFault, match="a metric returns one number, not Tensor"):
        checked_metric(component, SummedMetric(lambda logits, y: logits.sum(0), lambda sums: sums))(logits, y)
