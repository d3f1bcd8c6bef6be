"""Copies of models are those of `copy.deepcopy`, whatever stands in them."""

from __future__ import annotations

import copy

import torch
from torch import nn

from fedbench.models.copying import copied, moved
from fedbench.testing.setups import tiny_vit


class Own(nn.Module):
    """Says itself how it is copied."""

    def __deepcopy__(self, memo):
        return Own()


class Knotted(nn.Module):
    """Refers to itself, shares a parameter, and has what is no module."""

    def __init__(self):
        super().__init__()
        self.one, self.own = nn.Linear(2, 2), Own()
        self.other = nn.Linear(2, 2)
        self.other.weight = self.one.weight
        self.kept, self.heard = {"me": [self], "table": {1: {"x"}}}, []
        self.register_buffer("seen", torch.arange(3), persistent=False)
        self.one.register_forward_hook(lambda *given: None)


def test_a_copy_is_what_deepcopy_gives():
    model = Knotted()
    model.other.weight.requires_grad_(False)
    for twin in (copied(model), copy.deepcopy(model)):
        assert twin.kept["me"] == [twin] and twin.kept["table"] == {1: {"x"}}
        assert twin.one.weight is twin.other.weight is not model.one.weight and not twin.one.weight.requires_grad
        assert torch.equal(twin.one.weight, model.one.weight) and type(twin.own) is Own
        assert twin.seen is not model.seen and list(twin.state_dict()) == list(model.state_dict())
        assert list(twin.one._forward_hooks.values()) == list(model.one._forward_hooks.values())
        twin.heard.append(1)
        twin.one._forward_hooks.clear()
        assert not model.heard and model.one._forward_hooks


def test_what_stands_in_for_a_part_is_taken():
    model, idle = tiny_vit(), nn.Identity()
    twin = copied(model, {id(model.blocks[0]): idle})
    assert twin.blocks[0] is idle and repr(twin.blocks[1]) == repr(model.blocks[1])
    x = torch.zeros(1, 3, 8, 8)
    assert torch.equal(copied(model)(x), model(x))


def test_a_model_goes_where_it_is_not_yet():
    model = nn.Linear(2, 2)
    assert moved(model, "cpu") is model and model.weight.device.type == "cpu"
    assert moved(model, "meta").weight.is_meta
