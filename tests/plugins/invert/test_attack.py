"""The attacks themselves: scores by hand, and models small enough that what was seen has one explanation."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from fedbench.seeding import generator
from fedbench_plugins.invert.attack import (
    Descent,
    correlation,
    from_features,
    from_gradient,
    from_span,
    invert,
    psnr,
    total_variation,
)

SHAPE = (1, 3, 2, 2)
LONG = Descent(steps=600, tv=0.0)


@pytest.fixture
def x():
    return torch.rand(SHAPE, generator=torch.Generator().manual_seed(7))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(8))


def rebuilt(mismatch, how=LONG, seed=0):
    return invert(mismatch, SHAPE, how, generator(seed))


def test_total_variation_by_hand():
    image = torch.tensor([[[[0.0, 1.0, 1.0], [0.5, 0.5, 0.0]]]])
    assert total_variation(image).item() == pytest.approx((0.5 + 0.5 + 1.0) / 3 + (1.0 + 0.0 + 0.0 + 0.5) / 4)
    assert total_variation(torch.full((2, 3, 4, 4), 0.3)).item() == 0


def test_psnr_by_hand():
    zero = torch.zeros(SHAPE)
    assert psnr(zero + 0.1, zero) == pytest.approx(20.0, abs=1e-5)
    assert psnr(zero + 1, zero) == 0
    assert psnr(zero, zero) == math.inf


def test_correlation_by_hand():
    a = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    assert correlation(0.2 + 0.3 * a, a) == pytest.approx(1.0)
    assert correlation(1 - a, a) == pytest.approx(-1.0)
    assert correlation(a.mT, a) == pytest.approx(0.0)
    assert correlation(torch.full_like(a, 0.4), a) == 0


def test_features_of_an_invertible_head_give_the_image_away(x):
    A = torch.eye(12) + 0.2 * draw(12, 12)
    found = rebuilt(from_features(lambda x: x.flatten(1) @ A, x.flatten(1) @ A))
    assert psnr(found, x) > 40


def test_the_gradient_of_a_linear_model_gives_the_image_away(x):
    W, b, y = torch.zeros(4, 12, requires_grad=True), torch.zeros(4, requires_grad=True), torch.tensor([2])

    def gradient(x):  # (softmax(0) - onehot(y)) x^T, and the same without x
        return torch.autograd.grad(F.cross_entropy(x.flatten(1) @ W.T + b, y), [W, b], create_graph=True)

    g = [one.detach() for one in gradient(x)]
    assert torch.allclose(g[0] / g[1][:, None], x.flatten(1).expand(4, 12))
    assert psnr(rebuilt(from_gradient(gradient, g)), x) > 40
    assert from_gradient(gradient, [-5 * one for one in g])(x).item() == pytest.approx(2.0, abs=1e-6)


def test_the_rows_of_a_linear_layers_gradient_span_its_inputs(x):
    delta = draw(2, 5)

    def inputs(x):  # two tokens of six numbers
        return x.reshape(1, 2, 6)

    g = torch.einsum("to,td->od", delta, inputs(x)[0])
    mismatch = from_span(inputs, g)
    assert mismatch(x).item() == pytest.approx(0.0, abs=1e-10)
    assert mismatch(x.flip(-1)).item() > 1e-3
    mixed = torch.einsum("st,td->sd", torch.tensor([[2.0, 1.0], [0.0, -3.0]]), inputs(x)[0])
    assert mismatch(mixed.reshape(SHAPE)).item() == pytest.approx(0.0, abs=1e-10)  # all that a span tells


def test_total_variation_smooths_what_nothing_is_known_of(x):
    found = rebuilt(lambda x: 0 * x.sum(), Descent(steps=200, tv=1.0))
    noise = rebuilt(lambda x: 0 * x.sum(), Descent(steps=200, tv=0.0))
    assert total_variation(found) < 0.1 * total_variation(noise)


def test_the_seed_decides_and_images_stay_in_range(x):
    def far(x):
        return (x - 7).abs().sum() * 1.0

    short = Descent(steps=3, tv=0.0)
    assert torch.equal(rebuilt(far, short), rebuilt(far, short))
    assert not torch.equal(rebuilt(far, short), rebuilt(far, short, seed=1))
    assert rebuilt(far).max() == 1
