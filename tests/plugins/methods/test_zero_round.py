"""A probe on the server's images: the minimum it is at, and that nobody takes part."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbench.errors import NotApplicable, UserError
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, proxy_images, same, setup_of, tiny_vit
from fedbench_plugins.methods.controls import probe


def made(registry, model=None, proxy=proxy_images, **options):
    setup = replace(setup_of(registry, model or tiny_vit(), [4, 2]), proxy=proxy)
    return setup, registry.make("method", {"name": "zero_round", **options}, setup=setup)


def test_the_probe_is_where_the_gradient_is_0():
    """mean CE + l2 / 2 ||W||^2 has one minimum but for what all biases share, and from 0 that stays 0."""
    draw = torch.Generator().manual_seed(0)
    z, y = torch.randn(9, 4, generator=draw, dtype=torch.float64), torch.arange(9) % 3
    W, b = probe(z, y, 3, 0.1)
    error = ((z @ W.T + b).softmax(1) - F.one_hot(y, 3)) / 9
    assert (error.T @ z + 0.1 * W).abs().max() < 1e-8 and error.sum(0).abs().max() < 1e-8
    assert b.sum().abs() < 1e-12 and W.abs().max() > 0.1
    weaker, _ = probe(z, y, 3, 0.01)
    assert weaker.norm() > W.norm()


def test_the_model_is_the_probe_of_the_frozen_features_whatever_the_generator(registry):
    setup, method = made(registry, l2=0.01)
    state = method.init(generator(0))
    assert same(state, method.init(generator(1)))
    body, (x, y) = setup.backbone, proxy_images()
    with torch.no_grad():
        W, b = probe(body.pooled(x), y, 3, 0.01)
        found = method.predictor(state)(x)
        torch.testing.assert_close(found, body.pooled(x) @ W.T + b)
    assert (found.argmax(1) == y).double().mean() > 0.5
    assert not any(p.grad is not None for p in body.parameters())
    _, plain = made(registry)
    assert not same(state, plain.init(generator(0)))


def test_nobody_takes_part(registry):
    _, method = made(registry)
    state = method.init(generator(0))
    after, report = method.round(state, 0, cohort_of([4, 2]), generator(0, 0))
    assert same(after, state) and len(report.cohort) == len(report.cost) == len(report.plan.M) == 0
    assert method.cost(4, 0) is None and method.alone and not method.personal


def test_a_model_that_cannot_be_cut_into_layers_is_probed_too(registry):
    class Net(nn.Module):
        num_features = 5

        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(5, 192, generator=torch.Generator().manual_seed(0)))

        def forward(self, x):
            return torch.tanh(x.flatten(1) @ self.w.T)

    setup, method = made(registry, Net())
    x = proxy_images()[0]
    predict = method.predictor(method.init(generator(0)))
    with torch.no_grad():
        logits = setup.backbone.classifiers["head"](predict.features(x))
        assert logits.shape == (12, 3) and torch.equal(predict(x), logits)


def test_without_images_of_the_server_there_is_a_dash(registry):
    with pytest.raises(NotApplicable, match="says nothing of data.proxy"):
        made(registry, proxy=lambda: None)
    with pytest.raises(UserError, match="l2: expected a number above 0, got 0"):
        made(registry, l2=0)
