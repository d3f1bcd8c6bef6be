"""Slices of tensors by hidden units: which, in what shapes, where they stand, and slices of slices."""

from __future__ import annotations

import pytest
import torch

from fedbench.errors import UserError
from fedbench.families.width.narrow import offered
from fedbench.families.width.units import Axis, Units, WidthMap, count, first
from fedbench.types.clients import rate_of

MAP = WidthMap(
    {"D": Units(4), "heads": Units(3, runs=2)},
    {"qkv": (Axis("heads", 3), Axis("D")), "proj": (Axis("D"), Axis("heads")), "token": (None, None, Axis("D"))},
)


def test_a_slice_holds_ceil_K_g_units_whatever_floating_point_says():
    assert [count(10, g) for g in (1, 0.7, 0.25, 0.01)] == [10, 7, 3, 1]  # 10 * 0.7 is 7.000000000000001
    assert first(6, 0.5, 7).tolist() == [0, 1, 2]


def test_of_every_head_the_first_and_of_q_k_and_v_the_same():
    half = MAP.slice(0.5)
    assert half.held["heads"].tolist() == [0, 1, 3, 4]
    assert half.index("qkv")[0].tolist() == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16]
    assert half.index("token")[:2] == [None, None]
    qkv = torch.arange(72.0).reshape(18, 4)
    assert torch.equal(half.of({"qkv": qkv})["qkv"], qkv[half.index("qkv")[0]][:, :2])
    assert half.shape("qkv", qkv.shape) == [12, 2] and half.shape("token", torch.Size([1, 5, 4])) == [1, 5, 2]


def test_what_is_put_back_stands_where_it_was_taken_and_nowhere_else():
    half, whole = MAP.slice(0.5), torch.arange(24.0).reshape(4, 6)
    mask = half.mask("proj", whole)
    assert mask.nonzero().tolist() == [[i, j] for i in (0, 1) for j in (0, 1, 3, 4)]
    again = whole.clone()
    half.put("proj", again, -half.of({"proj": whole})["proj"])
    assert torch.equal(again, torch.where(mask, -whole, whole))
    token = torch.zeros(1, 5, 4)
    half.put("token", token, torch.ones(1, 5, 2))
    assert torch.equal(token.bool(), half.mask("token", token)) and token.sum() == 10


def test_a_slice_within_a_wider_one_is_the_slice_itself():
    def last(K, g, t):
        return torch.arange(K).flip(0)[: count(K, g)]  # and not in order

    whole = {"proj": torch.arange(24.0).reshape(4, 6)}
    for rule in (first, last):
        wide, narrow = MAP.slice(0.75, rule), MAP.slice(0.3, rule)
        assert torch.equal(narrow.within(wide).of(wide.of(whole))["proj"], narrow.of(whole)["proj"])


def test_gradients_flow_through_a_slice_to_what_it_holds():
    leaf = torch.ones(4, 6, requires_grad=True)
    MAP.slice(0.5).of({"proj": leaf})["proj"].sum().backward()
    assert torch.equal(leaf.grad.bool(), MAP.slice(0.5).mask("proj", leaf))


def test_a_client_takes_the_widest_that_it_can_hold():
    rates = offered("m", "rates", [0.25, 1, 0.5, 0.5])
    assert rates == (1.0, 0.5, 0.25)
    assert [rate_of(rates, L_n, 12) for L_n in (12, 11, 3, 2, 1)] == [1.0, 0.5, 0.5, 0.25, 0.25]  # g^2 of the weights
    assert rate_of((1.0, 0.5), 2, 12) is None
    assert [rate_of(rates, 12, 12, width) for width in (1.0, 0.99, 0.25, 0.2)] == [1.0, 0.5, 0.25, None]


@pytest.mark.parametrize("rates", [[], [0], [1.5], "1", [True], ["half"]])
def test_rates_without_a_meaning_are_refused(rates):
    with pytest.raises(UserError, match="m: rates (is a list of numbers|are) above 0 and at most 1"):
        offered("m", "rates", rates)
