"""The faster products against the plain ones, and when they are taken."""

import pytest
import torch
from torch.nn import functional as F

from fedbench import machine
from fedbench.models import kernels
from fedbench.models.kernels import frozen_linear, gelu_of_product, low_rank_linear, product


@pytest.fixture
def everywhere(monkeypatch):
    """Take the faster path on every CPU, by the plain product where oneDNN is not the choice."""
    if kernels.onednn_linear() is None:
        monkeypatch.setattr(kernels, "onednn_linear", lambda: F.linear)


def gradients(run, *tensors):
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = run(*leaves)
    (y * torch.linspace(0, 1, y.numel()).view_as(y).to(y)).sum().backward()
    return [y.detach(), *[leaf.grad for leaf in leaves]]


def equal(fast, plain, **tolerance):
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two, **tolerance)


def test_a_frozen_product_and_its_gradient_equal_the_plain_ones(everywhere):
    weight, bias, x = torch.randn(7, 5), torch.randn(7), torch.randn(3, 4, 5)
    equal(
        gradients(lambda x: frozen_linear(x, weight, bias), x),
        gradients(lambda x: F.linear(x, weight, bias), x),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gelu_after_a_product_equals_the_two_of_them(dtype):
    weight, bias, x = (torch.randn(shape, dtype=dtype) for shape in ((7, 5), (7,), (3, 4, 5)))
    torch.testing.assert_close(gelu_of_product(x, weight, bias), F.gelu(F.linear(x, weight, bias)))


def test_strided_rows_and_transposed_weights_are_fine(everywhere):
    weight, x = torch.randn(5, 7), torch.randn(5, 3).t()
    torch.testing.assert_close(product(x, weight.t()), x @ weight)


def plain_low_rank(x, weight, bias, A, B, scaling):
    return F.linear(x, weight, bias) + scaling * torch.cat(
        [part @ a.T @ b.T for part, a, b in zip(x.chunk(len(A)), A, B, strict=True)]
    )


@pytest.mark.parametrize("bias", [True, False])
def test_stacked_adapters_on_a_frozen_weight_equal_the_formula(bias):
    """y_n = x_n W^T + b + s x_n A_n^T B_n^T, and its gradients for x, A and B."""
    draw = torch.Generator().manual_seed(0)
    weight, bias, x, A, B = (
        torch.randn(shape, generator=draw, dtype=torch.float64)
        for shape in ((7, 5), (7,), (6, 4, 5), (3, 2, 5), (3, 7, 2))
    )
    bias = bias if bias is True else None
    fast = gradients(lambda x, A, B: low_rank_linear(x, weight, bias, A, B, 0.5), x, A, B)
    equal(fast, gradients(lambda x, A, B: plain_low_rank(x, weight, bias, A, B, 0.5), x, A, B), rtol=1e-12, atol=1e-12)


def test_no_gradient_is_computed_for_rows_that_need_none(monkeypatch):
    x, weight, A, B = torch.randn(2, 3, 5), torch.randn(7, 5), torch.randn(2, 2, 5), torch.randn(2, 7, 2)
    A.requires_grad_()
    y = low_rank_linear(x, weight, None, A, B, 1.0)
    monkeypatch.setattr(kernels, "product", lambda *args: pytest.fail("the gradient of x was computed"))
    y.sum().backward()
    assert A.grad.abs().sum() > 0


def test_under_autocast_products_are_torchs_own():
    x, weight, A, B = torch.randn(2, 3, 5), torch.randn(7, 5), torch.randn(2, 2, 5), torch.randn(2, 7, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert frozen_linear(x, weight).dtype == torch.bfloat16
        y = low_rank_linear(x, weight, None, A, B, 1.0)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), plain_low_rank(x, weight, None, A, B, 1.0), rtol=0.05, atol=0.2)


@pytest.mark.parametrize(("vendor", "avx512"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_the_choice_hangs_on_the_processors_make_alone(monkeypatch, vendor, avx512):
    monkeypatch.setattr(kernels.machine, "vendor", lambda: vendor)
    monkeypatch.setattr(kernels.machine, "has_avx512", lambda: avx512)
    kernels.onednn_linear.cache_clear()
    try:
        assert kernels.onednn_linear() is None
    finally:
        kernels.onednn_linear.cache_clear()


@pytest.mark.parametrize("what", ["missing", "wrong"])
def test_an_operator_that_is_not_there_or_gone_wrong_is_not_used(monkeypatch, what):
    class Operators:
        if what == "wrong":

            @staticmethod
            def _linear_pointwise(x, w, b, *rest):
                return F.linear(x, w, b) + 1

    monkeypatch.setattr(kernels.machine, "vendor", lambda: "AuthenticAMD")
    monkeypatch.setattr(kernels.machine, "has_avx512", lambda: True)
    monkeypatch.setattr(kernels.torch.ops, "mkldnn", Operators)
    kernels.onednn_linear.cache_clear()
    try:
        assert kernels.onednn_linear() is None
    finally:
        kernels.onednn_linear.cache_clear()


def test_a_weight_that_is_trained_is_refused():
    x, A, B = torch.randn(2, 3, 5), torch.randn(2, 2, 5), torch.randn(2, 7, 2)
    with pytest.raises(ValueError, match="frozen weight"):
        low_rank_linear(x, torch.randn(7, 5, requires_grad=True), None, A, B, 1.0)


@pytest.mark.parametrize("shape", [(1, 4, 64, 3), (3, 16, 64, 6), (5, 7, 192, 10)], ids=str)
def test_classifiers_of_many_clients_are_to_the_bit_each_ones_own_where_the_processor_is_amds(shape):
    n, B, D, C = shape
    draw = torch.Generator().manual_seed(0)
    x, W, b = (torch.randn(of, generator=draw).requires_grad_() for of in ((n, B, D), (n, C, D), (n, C)))
    alone = torch.stack([F.linear(x[i], W[i], b[i]) for i in range(n)])
    at_once = kernels.linears(x, W, b)
    grads = [torch.autograd.grad(y.square().sum(), (x, W, b)) for y in (alone, at_once)]
    apart = 0 if "AMD" in machine.vendor() else 1e-5
    for one, two in zip((alone, *grads[0]), (at_once, *grads[1]), strict=True):
        torch.testing.assert_close(one, two, rtol=apart, atol=apart)
