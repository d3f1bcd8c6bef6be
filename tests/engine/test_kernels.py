"""The faster kernels against the plain ones, and when they are taken."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbench.engine import kernels
from fedbench.engine.kernels import Fast, FrozenLinear


@pytest.fixture
def everywhere(monkeypatch):
    """Take the faster path on every CPU, by the plain product where oneDNN is not the choice."""
    if kernels.onednn_linear() is None:
        monkeypatch.setattr(kernels, "onednn_linear", lambda: F.linear)


def gradients(run, *tensors):
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = run(*leaves)
    y.square().sum().backward()
    return [y.detach(), *[leaf.grad for leaf in leaves]]


def test_a_frozen_product_and_its_gradient_equal_the_plain_ones(everywhere):
    weight, bias, x = torch.randn(7, 5), torch.randn(7), torch.randn(3, 4, 5)
    fast = gradients(lambda x: FrozenLinear.apply(x, weight, bias), x)
    plain = gradients(lambda x: F.linear(x, weight, bias), x)
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two)


def test_strided_operands_are_fine(everywhere):
    weight, x = torch.randn(5, 7).t(), torch.randn(5, 3).t()
    torch.testing.assert_close(FrozenLinear.apply(x, weight.contiguous(), None), F.linear(x, weight))


def test_short_attention_equals_the_fused_kernel():
    q, k, v = (torch.randn(2, 3, 9, 4) for _ in range(3))
    with Fast():
        explicit = gradients(lambda *t: F.scaled_dot_product_attention(*t), q, k, v)
    for one, two in zip(explicit, gradients(lambda *t: F.scaled_dot_product_attention(*t), q, k, v), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("what", ["trained weight", "float64", "trained bias", "autocast"])
def test_what_is_not_frozen_float32_takes_the_plain_way(everywhere, monkeypatch, what):
    monkeypatch.setattr(FrozenLinear, "apply", lambda *args: pytest.fail("the frozen path was taken"))
    layer = nn.Linear(3, 2).requires_grad_(False)
    x = torch.randn(1, 3)
    layer.weight.requires_grad_(what == "trained weight")
    layer.bias.requires_grad_(what == "trained bias")
    if what == "float64":
        layer, x = layer.double(), x.double()
    with Fast(), torch.autocast("cpu", torch.bfloat16, enabled=what == "autocast"):
        layer(x)


def test_a_frozen_layer_takes_the_fast_way(everywhere, monkeypatch):
    taken = []
    monkeypatch.setattr(FrozenLinear, "apply", lambda *args: taken.append(args) or args[0])
    with Fast():
        nn.Linear(3, 3).requires_grad_(False)(torch.randn(1, 3))
    assert len(taken) == 1


def test_the_choice_hangs_on_the_vendor_alone(monkeypatch):
    monkeypatch.setattr(kernels.machine, "vendor", lambda: "GenuineIntel")
    kernels.onednn_linear.cache_clear()
    try:
        assert kernels.onednn_linear() is None
    finally:
        kernels.onednn_linear.cache_clear()
