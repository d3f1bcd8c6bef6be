"""Models at a smaller size: they compute what the whole model computes with units taken out."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbench.errors import UserError
from fedbench.families import wholemodel
from fedbench.families.wholemodel import OnLogits, WholeModel
from fedbench.families.width.narrow import Cuts, HeldGroupNorm, narrowed
from fedbench.families.width.units import count, first
from fedbench.models import backbone, counting
from fedbench.models.backbone import body_of
from fedbench.testing.setups import setup_of, tiny_mixer, tiny_vit


def whole(model, origin=None):
    made = body_of(model, origin)
    made.add_classifier("head", 3)
    return WholeModel(made).double().requires_grad_(True)


def weights_of(model):
    return {name: p.detach() for name, p in model.weights().items()}


X = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def masked_vit(w, x, D, d, H, heads=2, scale=1.0):
    """The whole tiny ViT with all units but D embedding dimensions, d of each head and H hidden ones set to 0."""
    keep = {"D": torch.arange(8) < D, "A": (torch.arange(8) % 4) < d, "H": torch.arange(16) < H}

    def norm(z, name):
        m = keep["D"]
        mean = z[..., m].mean(-1, keepdim=True)
        var = ((z[..., m] - mean) ** 2).mean(-1, keepdim=True)
        return torch.where(m, (z - mean) / (var + 1e-6).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"], 0.0)

    def linear(z, name, units):
        return F.linear(z, w[f"{name}.weight"], w[f"{name}.bias"]) / scale * keep[units]

    z = F.conv2d(x, w["model.patch_embed.proj.weight"], w["model.patch_embed.proj.bias"], stride=4)
    z = torch.cat([w["model.cls_token"].expand(len(x), 1, 8), z.flatten(2).mT], 1) + w["model.pos_embed"]
    z = z / scale * keep["D"]
    for j in range(2):
        at = f"model.blocks.{j}"
        qkv = F.linear(norm(z, f"{at}.norm1"), w[f"{at}.attn.qkv.weight"], w[f"{at}.attn.qkv.bias"]) / scale
        q, k, v = ((part * keep["A"]).unflatten(2, (heads, 4)).transpose(1, 2) for part in qkv.split(8, 2))
        mixed = ((q @ k.mT / d**0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
        z = z + linear(mixed, f"{at}.attn.proj", "D")
        hidden = F.gelu(linear(norm(z, f"{at}.norm2"), f"{at}.mlp.fc1", "H"))
        z = z + linear(hidden, f"{at}.mlp.fc2", "D")
    return norm(z, "model.norm")[:, 0] @ w["head.weight"].T + w["head.bias"]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("g", "units", "scaled"), [(0.5, (4, 2, 8), False), (0.3, (3, 2, 5), True), (1, (8, 4, 16), True)]
)
def test_a_narrow_transformer_is_the_whole_one_with_units_masked(g, units, scaled, fused):
    """ceil(8 * 0.3) = 3 of the embedding, but ceil(4 * 0.3) = 2 of each of two heads."""
    model = whole(tiny_vit(depth=2))
    for block in model.body.blocks:
        block.attn.fused_attn = fused
    part, w = Cuts(model, scaled=scaled).at(g), weights_of(model)
    own = part.slice.of(w)
    assert own["model.blocks.0.attn.qkv.weight"].shape == (3 * 2 * units[1], units[0])
    assert own["model.pos_embed"].shape[-1] == units[0] and own["head.weight"].shape == (3, units[0])
    expected = masked_vit(w, X, *units, scale=g if scaled else 1.0)
    torch.testing.assert_close(part.model.logits(own, X), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [tiny_vit, tiny_mixer])
def test_the_full_width_is_the_model_to_the_bit(make):
    model = whole(make())
    part, w = Cuts(model, scaled=True).at(1.0), weights_of(model)
    assert torch.equal(part.model.logits(part.slice.of(w), X), model.logits(w, X))


def test_a_group_is_normalised_over_those_of_its_channels_that_are_held():
    draw = torch.Generator().manual_seed(1)
    norm = nn.GroupNorm(3, 12).double()
    for p in (norm.weight, norm.bias):
        nn.init.normal_(p, generator=draw)
    x = torch.randn(2, 12, 3, 3, dtype=torch.float64, generator=draw)
    for numbers in ([0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7, 8], [0, 9, 10, 11], list(range(12))):
        held = torch.tensor(numbers)
        small = HeldGroupNorm(norm, held)
        small.weight, small.bias = (nn.Parameter(p.detach()[held]) for p in (norm.weight, norm.bias))
        out = small(x[:, held])
        for group in {n // 4 for n in numbers}:
            own = [i for i, n in enumerate(numbers) if n // 4 == group]
            z = x[:, [numbers[i] for i in own]]
            mean, var = z.mean((1, 2, 3), keepdim=True), z.var((1, 2, 3), keepdim=True, correction=0)
            z = (z - mean) / (var + norm.eps).sqrt()
            expected = z * small.weight[own, None, None] + small.bias[own, None, None]
            torch.testing.assert_close(out[:, own], expected, rtol=0, atol=1e-12)
    assert torch.equal(small(x), norm(x))


def test_groups_held_as_a_whole_compute_what_they_compute_in_the_whole_model(registry):
    model = whole(registry.make("backbone", {"name": "micro_cnn"}).model)
    part, w = Cuts(model).at(0.25), weights_of(model)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    conv, norm = model.body.model[0], model.body.model[1]
    small = part.model.body.model[1]
    assert small.stretches == [(4, 2)]  # 8 of 32 channels: the first two of eight groups
    assert part.model.logits(part.slice.of(w), x).shape == (2, 3)
    small.weight, small.bias = (nn.Parameter(p.detach()[:8]) for p in (norm.weight, norm.bias))
    torch.testing.assert_close(small(conv(x)[:, :8]), norm(conv(x))[:, :8], rtol=0, atol=1e-12)
    assert Cuts(model).at(0.0625).model.body.model[1].stretches == [(2, 1)]  # half a group


def test_work_and_bytes_are_those_of_the_small_model(registry):
    model = whole(registry.make("backbone", {"name": "micro_cnn"}).model)

    def loss(model, x, y):
        return F.cross_entropy(model.logits(model.weights(), x), y)

    full, _ = counting.counted(model, loss, 32)
    half, _ = counting.counted(Cuts(model).at(0.5).model, loss, 32)
    assert 0.24 < half / full < 0.30  # the first layer reads all of the image
    numels = [sum(p.numel() for p in Cuts(model).at(g).model.parameters()) for g in (1, 0.5, 0.25)]
    assert numels[0] == sum(p.numel() for p in model.parameters())
    assert 0.24 < numels[1] / numels[0] < 0.26 and 0.06 < numels[2] / numels[0] < 0.067


def test_a_narrowed_model_is_one_of_its_own_and_draws_its_classifier_as_one():
    model = whole(tiny_vit())
    small = narrowed(model, 0.5)
    w = small.weights()
    assert w["head.weight"].shape == (3, count(8, 0.5)) and small.body.num_features == 4
    part = Cuts(model).at(0.5)
    torch.testing.assert_close(small.logits(w, X), part.model.logits(part.slice.of(weights_of(model)), X))
    small.body.draw(torch.Generator().manual_seed(0))
    assert w["head.weight"].abs().max() > 8**-0.5  # within 4 ** -0.5 now
    with pytest.raises(UserError, match="width is above 0 and at most 1, not 0"):
        narrowed(model, 0)


def test_fedavg_of_a_smaller_width_pays_for_the_small_model(registry):
    full, half = (
        registry.make("method", {"name": "fedavg", "width": width}, setup=setup_of(registry, tiny_vit(), [1]))
        for width in (1.0, 0.5)
    )
    state = half.init(torch.Generator().manual_seed(0))
    assert state["shared"]["model.blocks.0.mlp.fc1.weight"].shape == (8, 4)
    assert half.cost(1, 0).bytes_up == sum(value.nbytes for value in state["shared"].values())
    assert half.cost(1, 0).bytes_up < 0.35 * full.cost(1, 0).bytes_up
    assert half.cost(1, 0).flops_per_image < 0.35 * full.cost(1, 0).flops_per_image


def mean_loss(outputs, y, t, weight=1.0):
    return weight * F.cross_entropy(outputs[0], y)


def spread(K, g, t):
    """As many units as `first` takes, spread over all of them."""
    return torch.arange(K)[:: round(1 / g)]


def test_equal_models_are_counted_once_and_what_shapes_do_not_tell_is_told_apart(registry, monkeypatch):
    counted = []
    monkeypatch.setattr(
        wholemodel, "counted", lambda *given, **how: counted.append(1) or counting.counted(*given, **how)
    )
    monkeypatch.setattr(backbone, "_found", {})

    def priced(origin="a CNN", loss=mean_loss, rule=first, scaled=False):
        """What a new model costs, and whether that was counted now."""
        model = whole(registry.make("backbone", {"name": "micro_cnn"}).model, origin)
        twin, before = Cuts(model, rule, scaled).at(0.25).model, len(counted)
        price = twin.to_train(loss if loss.__closure__ else OnLogits(partial(loss, weight=2.0)), 32)
        assert price == counting.counted(twin, OnLogits(mean_loss), 32)
        return len(counted) > before

    assert priced() and not priced()
    assert priced(rule=spread) and not priced(rule=spread)  # of the same shapes, but its groups are of one channel
    assert priced(scaled=True) and not priced(scaled=True)
    assert priced("another") and priced(None) and priced(None)
    bound = OnLogits(mean_loss)
    assert all(priced(loss=lambda *given: bound(*given)) for _ in range(2))  # a closure would be kept with all it holds
