"""Fed-HeLLo: which layers are trained, by shape and by Fisher information."""

from dataclasses import replace

import pytest
import torch
from ragged import ragged, same
from torch import nn
from torch.func import functional_call

from fedbench.errors import NotApplicable, UserError
from fedbench.seeding import generator
from fedbench.testing import check_method
from fedbench.testing.setups import setup_of, tiny_vit
from fedbench.types import Exit
from fedbench_plugins.methods.baselines import alllarge
from fedbench_plugins.methods.fed_hello import (
    BOTTLENECK,
    SHAPES,
    by_cluster,
    fed_hello,
    fisher_scores,
    fixed,
    probabilities,
    randomised,
)

pytestmark = pytest.mark.usefixtures("counted_once")


def proxy():
    draw = torch.Generator().manual_seed(4)
    return torch.randn(6, 3, 8, 8, generator=draw, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])


def with_proxy(setup):
    return replace(setup, proxy=proxy)


def test_the_bottleneck_is_the_released_one_and_others_are_lines():
    torch.testing.assert_close(27 * probabilities("bottleneck", 12), torch.tensor(BOTTLENECK).double())
    torch.testing.assert_close(9 * probabilities("triangle", 3), torch.tensor([4.5, 3.0, 1.5]).double())
    assert all(abs(float(probabilities(shape, 5).sum()) - 1) < 1e-12 for shape in SHAPES)


def test_fixed_takes_the_likeliest_from_the_ends():
    pi = torch.tensor([0.3, 0.1, 0.1, 0.2, 0.3])
    assert fixed(pi, torch.tensor([1, 3])).tolist() == [[False] * 4 + [True], [True, False, False, True, True]]


@pytest.mark.parametrize("strategy", ["randomised", "fixed"])
def test_what_fits_a_device_fits_whichever_layers_are_drawn(registry, strategy):
    """One layer of four: the lowest keeps activations of all above. What is fixed is priced as it is."""
    setup = with_proxy(setup_of(registry, tiny_vit(), [4]))
    prices = []
    for fitting in (False, True):
        setup = with_proxy(setup_of(registry, tiny_vit(), [4]))
        setup = replace(setup, scenario=replace(setup.scenario, fitting=fitting))
        method = fed_hello(setup, strategy)
        prices.append({method.price(1, t).memory_bytes for t in range(20)})
    assert prices[1] == {max(prices[0])} and (len(prices[0]) > 1) == (strategy != "fixed")


def test_drawn_layers_follow_the_shape():
    pi = torch.tensor([0.7, 0.2, 0.1, 0.0], dtype=torch.float64)
    chosen = randomised(pi, torch.full((4000,), 1), torch.Generator().manual_seed(0))
    assert (chosen.sum(1) == 1).all() and not chosen[:, 3].any()
    torch.testing.assert_close(chosen.double().mean(0), pi, atol=0.03, rtol=0)


def test_clusters_are_in_the_order_of_their_scores():
    """Two high, one middle, two low: 3, 2 and 1 parts of 10."""
    weights = by_cluster(torch.tensor([9.0, 0.1, 5.0, 8.9, 0.2]))
    torch.testing.assert_close(10 * weights, torch.tensor([3, 1, 2, 3, 1]).double())


def test_the_score_is_the_norm_of_mean_squared_gradients(registry):
    setup = setup_of(registry, tiny_vit(2), [2])
    method = alllarge(setup)
    method.predictor(method.init(generator(0)))
    (x, y), model = proxy(), setup.backbone
    parameters = list(model.r(1).values())
    squares = []
    for image, label in zip(x, y, strict=True):
        logit = model.classifiers["head"](model.pooled(image[None]))[0, label]
        squares.append([g**2 for g in torch.autograd.grad(logit, parameters)])
    expected = sum(torch.stack(of).mean(0).norm() for of in zip(*squares, strict=True))
    torch.testing.assert_close(fisher_scores(model, x, y)[1], expected.detach())


@pytest.mark.parametrize(
    "strategy", ["fisher", *(pytest.param(other, marks=pytest.mark.slow) for other in ("randomised", "fixed"))]
)
def test_it_keeps_the_contract(registry, strategy):
    check_method(
        lambda setup: fed_hello(with_proxy(setup), strategy=strategy, prior_rounds=1, fisher_every=2), registry=registry
    )


def test_scores_are_kept_for_their_rounds_and_then_drawn_anew(registry):
    method = fed_hello(
        with_proxy(setup_of(registry, tiny_vit(), [2, 2])), strategy="fisher", prior_rounds=1, fisher_every=2
    )
    state, seen = method.init(generator(0)), []
    for t in range(3):
        state, report = method.round(state, t, ragged([2, 2], [1, 1], [3]), generator(0, t))
        seen.append(state["memory"].get("fed_hello"))
        assert report.plan.M.all() and report.plan.trained.sum(1).tolist() == [2, 2]
    assert seen[0] is None and seen[1] is not None and not torch.equal(seen[1], seen[2])


def test_with_all_layers_trained_it_is_alllarge(registry):
    cohort = ragged([4, 4], steps=[2, 1], sizes=[3])

    def after(make, **options):
        setup = setup_of(registry, tiny_vit(), [4, 4])
        method = make(setup, aggregator={"name": "weighted_mean", "weights": "uniform"}, **options)
        return method.round(method.init(generator(0)), 0, cohort, generator(0, 0))[0]

    same(after(fed_hello), after(alllarge))


def plain_loop(model, start, trained, cohort, lr, momentum):
    """Every client's tensors after its steps: all layers run, its own of them and the head take SGD's steps."""
    sent = []
    for n, layers in enumerate(trained.tolist()):
        names = [f"model.blocks.{j}.{name}" for j, yes in enumerate(layers) if yes for name in model.r(j)]
        own = {name: start[name].clone().requires_grad_() for name in [*names, *HEADS]}
        velocity = {name: torch.zeros_like(value) for name, value in own.items()}
        for x, y in cohort.batches(n):
            call = (x, range(4), [Exit(4, "head")])
            loss = nn.functional.cross_entropy(functional_call(model, {**start, **own}, call)[0], y)
            for name, g in zip(own, torch.autograd.grad(loss, list(own.values())), strict=True):
                velocity[name] = momentum * velocity[name] + g
                own[name] = (own[name] - lr * velocity[name]).detach().requires_grad_()
        sent.append(own)
    return sent


HEADS = ("classifiers.head.weight", "classifiers.head.bias")


def test_a_round_is_that_of_plain_loops(registry):
    """Uniform means over those who trained a layer, in float64 to 1e-12."""
    train = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}, "clip": None}
    setup = setup_of(registry, tiny_vit(), [1, 3], **train)
    method, cohort = fed_hello(setup), ragged([1, 3], steps=[2, 2], sizes=[3])
    state = method.init(generator(0))
    after, report = method.round(state, 0, cohort, generator(0, 0))
    start = {f"model.blocks.{j}.{name}": value for j, r_j in enumerate(state["r"]) for name, value in r_j.items()}
    start |= {f"classifiers.{name}": value for name, value in state["shared"].items()}
    sent = plain_loop(setup.backbone, start, report.plan.trained, cohort, 0.1, 0.9)
    expected = {
        name: torch.stack([own.get(name, old) for own in sent if name in own] or [old]).mean(0)
        for name, old in start.items()
    }
    for j, r_j in enumerate(after["r"]):
        same({f"model.blocks.{j}.{n}": v for n, v in r_j.items()}, {n: expected[n] for n in expected if f".{j}." in n})
    same(after["shared"], {name.removeprefix("classifiers."): expected[name] for name in HEADS})


def test_frozen_layers_are_charged_for_their_forward_pass(registry):
    """All layers come down, the trained ones' adapters go up; layers below the lowest trained cost less.."""
    method = fed_hello(setup_of(registry, tiny_vit(), [1, 4]), strategy="fixed")
    one, all_of_them = method.cost(1, 0), method.cost(4, 0)
    assert one.bytes_down == all_of_them.bytes_down and one.bytes_up < all_of_them.bytes_up
    assert one.flops_per_image < all_of_them.flops_per_image


def test_mistakes_are_told(registry):
    setup = replace(setup_of(registry, tiny_vit(), [2]), proxy=lambda: None)
    with pytest.raises(UserError, match='strategy: expected "randomised", "fixed" or "fisher"'):
        fed_hello(setup, strategy="greedy")
    with pytest.raises(NotApplicable, match=r"data\.proxy"):
        fed_hello(setup, strategy="fisher")
