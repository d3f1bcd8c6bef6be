"""What an aggregator may return: the tensors of the state that it was given, and a word for whatever else it does."""

from __future__ import annotations

import pytest
import torch

from fedbench.cell.returned import fault

STATE = {"r": [{"A": torch.ones(2, 3)}, {"A": torch.ones(2, 3)}], "shared": {"head": torch.ones(4)}, "memory": {}}


def changed(**layer):
    return {**STATE, "r": [layer, STATE["r"][1]]}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "it returned nothing where a state is right"),
        ([STATE], "it returned a list where a state is right"),
        ({"r": STATE["r"]}, "a state without 'shared': begin with dict(state)"),
        ({**STATE, "r": STATE["r"][:1]}, "a dict of tensors for each of 2 layers"),
        ({**STATE, "r": {"A": torch.ones(2, 3)}}, "in another layout"),
        ({**STATE, "shared": torch.ones(4)}, "in another layout"),
        (changed(B=torch.ones(2, 3)), "without r/0/A, which it was given"),
        (changed(A=torch.ones(2, 3), B=torch.ones(1)), "with r/0/B, which it was not given"),
        (changed(A=torch.ones(3, 2)), "a float32 tensor of shape (3, 2) for r/0/A, where a float32 tensor of shape (2"),
        (changed(A=torch.ones(2, 3).double()), "a float64 tensor of shape (2, 3) for r/0/A, where a float32 tensor"),
        (changed(A=1.5), "a float for r/0/A"),
    ],
)
def test_a_state_of_another_kind_is_told(made, told):
    assert told in fault(STATE, made)


@pytest.mark.parametrize("made", [STATE, changed(A=torch.zeros(2, 3)), {**STATE, "memory": {"t": 1}, "frozen": {}}])
def test_other_numbers_and_what_an_aggregator_remembers_are_its_own(made):
    assert fault(STATE, made) == ""


def test_nothing_in_layers_is_a_state_too():
    whole = {"r": [], "shared": {"w": torch.ones(3)}}
    assert fault(whole, {**whole, "memory": {}}) == ""
