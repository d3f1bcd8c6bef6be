"""SPSA against the directional derivative, the true gradient, and a forward pass's memory."""

from __future__ import annotations

import pytest
import torch
from memory import Allocated
from torch import nn

from fedbench.families import forward_only
from fedbench.families.forward_only import Direction, descend, losses_around, perturbed
from fedbench.models.backbone import Blocks
from fedbench.seeding import generator
from fedbench.testing.setups import tiny_mixer, tiny_vit

DIM = 12


class Quadratic(nn.Module):
    """L(w) = 1/2 ||A w + b||^2, w in two modules, one of them inside the other."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.A, self.b = (torch.randn(*size, generator=draw, dtype=torch.float64) for size in ((20, DIM), (20,)))
        self.outer = nn.Parameter(torch.randn(5, generator=draw, dtype=torch.float64))
        self.inner = nn.Linear(7, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.inner.weight.copy_(torch.randn(1, 7, generator=draw, dtype=torch.float64))

    def forward(self):
        along = torch.stack([self.inner(row[5:]) for row in self.A]).squeeze(1)
        return 0.5 * (self.A[:, :5] @ self.outer + along + self.b).square().sum()

    def gradient(self):
        w = torch.cat([self.outer, self.inner.weight[0]])
        return self.A.T @ (self.A @ w + self.b)


def flat(direction):
    """z as the quadratic meets it, drawn by the documented seeds."""
    parts = {"w.outer": 5, "w.inner.weight": 7}
    draws = [generator(direction.seed, direction.t, direction.client, f"spsa/{direction.number}/{n}") for n in parts]
    return torch.cat(
        [torch.empty(k, dtype=torch.float64).normal_(generator=g) for k, g in zip(parts.values(), draws, strict=True)]
    )


def estimate(model, directions, epsilon=0.5):
    """(DIM,) the mean estimate over the directions, as a step of length 1 reveals it."""
    both = [losses_around({"w": model}, model, d, epsilon).tolist() for d in directions]
    slopes = [(plus - minus) / (2 * epsilon) for plus, minus in both]
    into = {"w.outer": torch.zeros(5, dtype=torch.float64), "w.inner.weight": torch.zeros(1, 7, dtype=torch.float64)}
    descend(into, directions, slopes, lr=-1.0)
    return torch.cat([into["w.outer"], into["w.inner.weight"][0]])


@torch.no_grad()
def test_estimate_is_the_directional_derivative_times_z():
    """Of a quadratic the antithetic difference is exact at any epsilon."""
    model = Quadratic()
    for epsilon in (1e-3, 0.5, 3.0):
        direction = Direction(seed=3, t=1, client=7)
        z = flat(direction)
        torch.testing.assert_close(
            estimate(model, [direction], epsilon), (z @ model.gradient()) * z, rtol=1e-9, atol=1e-9
        )


@torch.no_grad()
def test_losses_are_those_at_both_ends():
    model, direction = Quadratic(), Direction(0, 0, 0)
    plus, minus = losses_around({"w": model}, model, direction, 0.25).tolist()
    z, w = flat(direction), torch.cat([model.outer, model.inner.weight[0]])
    for end, loss in ((w + 0.25 * z, plus), (w - 0.25 * z, minus)):
        assert loss == pytest.approx(float(0.5 * (model.A @ end + model.b).square().sum()), rel=1e-12)


@torch.no_grad()
def test_several_directions_are_averaged():
    model = Quadratic()
    directions = [Direction(0, 2, 1, number) for number in range(3)]
    one_by_one = torch.stack([estimate(model, [d]) for d in directions])
    torch.testing.assert_close(estimate(model, directions), one_by_one.mean(0), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_the_mean_of_many_estimates_tends_to_the_gradient():
    """E (g.z) z = g, and its coordinate i has variance |g|^2 + g_i^2 (Isserlis). The mean of n of them is normal to a
    good approximation; 5 standard errors are left by one coordinate in 1.7 million."""
    model, n = Quadratic(), 180
    g = model.gradient()
    mean = torch.stack([estimate(model, [Direction(11, 0, client)]) for client in range(n)]).mean(0)
    error = ((g.square().sum() + g.square()) / n).sqrt()
    assert ((mean - g).abs() < 5 * error).all()
    assert (g.abs() > 5 * error).any(), "a mean of 0 would pass too"


def test_draws_are_those_of_seed_round_client_and_number():
    def drawn(**changes):
        return Direction(**{"seed": 0, "t": 0, "client": 0, "number": 0} | changes).add("w", torch.zeros(50), 1.0)

    assert torch.equal(drawn(), drawn())
    for other in ("seed", "t", "client", "number"):
        assert not torch.equal(drawn(), drawn(**{other: 1}))
    assert not torch.equal(drawn(), Direction(0, 0, 0).add("v", torch.zeros(50), 1.0))


def test_large_tensors_are_drawn_in_pieces(monkeypatch):
    monkeypatch.setattr(forward_only, "CHUNK", 32)
    draw, whole = generator(0, 0, 0, "spsa/0/w"), torch.zeros(10, 10)
    pieces = [torch.empty(size).normal_(generator=draw) for size in (32, 32, 32, 4)]
    torch.testing.assert_close(Direction(0, 0, 0).add("w", whole, 2.0), 2 * torch.cat(pieces).view(10, 10))


@pytest.mark.parametrize("make", [tiny_vit, tiny_mixer])
def test_every_weight_is_moved_and_keeps_its_bits(make):
    """Inside, the model answers as one whose weights were all moved; afterwards as before."""
    model, moved = Blocks(make()).double(), Blocks(make()).double()
    direction, x = Direction(0, 0, 0), torch.randn(3, 3, 8, 8, dtype=torch.float64)
    tops = {"model.blocks": model.blocks, "model.norm": model.model.norm}
    before = {name: p.clone() for name, p in model.named_parameters()}
    identities = {name: id(p) for name, p in model.named_parameters()}
    for name, p in moved.named_parameters():
        if name.startswith(("model.blocks.", "model.norm.")):
            direction.add(name, p.data, 0.1)

    def answer(blocks):
        return blocks.features(blocks.blocks(blocks.embed(x)))

    with perturbed(tops, direction, 0.1), torch.no_grad():
        torch.testing.assert_close(answer(model), answer(moved), rtol=1e-12, atol=1e-12)
    assert all(torch.equal(p, before[name]) and id(p) == identities[name] for name, p in model.named_parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_weights_are_back_after_an_error():
    model = nn.Sequential(nn.Linear(3, 3))
    weight = model[0].weight
    with pytest.raises(RuntimeError), perturbed({"w": model}, Direction(0, 0, 0), 0.1):
        model(torch.zeros(2, 5))
    assert model[0].weight is weight


def test_there_is_no_graph():
    model = Quadratic()
    seen = []

    def loss():
        value = model()
        seen.append(value.requires_grad)
        return value

    losses_around({"w": model}, loss, Direction(0, 0, 0), 1e-4)
    assert seen == [False, False]


@pytest.mark.parametrize("explicit", [False, True])
def test_memory_is_that_of_a_forward_pass(registry, explicit):
    """Of the micro ViT with a batch of 32: what the call allocates is at most 1.1 times what a forward pass does, whole
    weights not counted on either side. The bar is that of the method's specification."""
    source = registry.make("backbone", {"name": "micro_vit"})
    forward, call = measured(Blocks(source.model), 32, source.image_size, explicit)
    assert 0 < forward < call <= 1.1 * forward


def measured(model, batch, size, explicit=False):
    """Peak bytes of a forward pass through the encoder and of an SPSA call."""
    for block in model.blocks:
        block.attn.fused_attn = not explicit
    with torch.no_grad():
        h = model.embed(torch.randn(batch, 3, size, size))

    @torch.no_grad()
    def loss():
        return model.features(model.blocks(h)).square().sum()

    with Allocated() as forward:
        loss()
    with Allocated() as call:
        losses_around({"model.blocks": model.blocks, "model.norm": model.model.norm}, loss, Direction(0, 0, 0), 1e-4)
    assert forward.now == 0 == call.now, "what was allocated is free again"
    return forward.peak, call.peak


def test_the_count_of_memory_is_right():
    with Allocated() as count:
        a = torch.zeros(1000)
        b = a + 1
        del a
        b.add_(1).view(10, 100)
    assert (count.peak, count.now) == (8000, 4000)


def test_slope_is_a_number_where_the_loss_is_flat():
    model = nn.Linear(3, 1)
    plus, minus = losses_around({"w": model}, lambda: 0 * model(torch.zeros(1, 3)).sum(), Direction(0, 0, 0), 1e-4)
    assert plus == minus
    assert losses_around({"w": model}, lambda: model(torch.ones(1, 3)).sum(), Direction(0, 0, 0), 1e-4).isfinite().all()
