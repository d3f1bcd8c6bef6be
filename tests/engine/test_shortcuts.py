"""timm's modules with less work, against timm itself."""

import pytest
import torch
from torch import nn

from fedbench.engine import shortcuts
from fedbench.models.backbone import Blocks
from fedbench.testing.setups import tiny_mixer, tiny_vit


@pytest.fixture
def vit():
    return Blocks(tiny_vit()).double().eval()


def tokens(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def close(one, two):
    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("targets", ["last_fc", ["attn.qkv", "mlp.fc1"]])
def test_the_last_layer_for_the_class_token_alone_equals_the_whole_layer(registry, vit, targets):
    registry.make("adapter", {"name": "lora", "rank": 2, "alpha": 4, "targets": targets})(vit)
    vit.double().draw(torch.Generator().manual_seed(0))
    x = tokens(2, 5, 8)
    assert shortcuts.reads_class_token(vit, 1)
    close(shortcuts.last_layer(vit.blocks[1], x), vit.blocks[1](x)[:, :1])


def test_the_shortcut_is_for_class_token_models_only():
    averaged = tiny_vit()
    averaged.global_pool = "avg"
    assert not shortcuts.reads_class_token(Blocks(averaged), 0)
    assert not shortcuts.reads_class_token(Blocks(tiny_mixer()), 0)
    distilled = tiny_vit()
    distilled.num_prefix_tokens = 2  # as in a distilled DeiT, which reads its second token too
    assert not shortcuts.reads_class_token(Blocks(distilled), 0)


@pytest.mark.parametrize("queries", [None, 1, 3])
@pytest.mark.parametrize("options", [{}, {"qkv_bias": True}, {"qk_norm": True, "scale_norm": True}], ids=str)
def test_explicit_attention_equals_timms_with_its_gradient(queries, options):
    from timm.models.vision_transformer import Attention

    attn = Attention(8, num_heads=2, norm_layer=nn.LayerNorm, **options).double().eval()
    x, again = tokens(3, 5, 8).requires_grad_(), tokens(3, 5, 8).requires_grad_()
    out, plain = shortcuts.attention(attn, x, queries), attn(again)[:, :queries]
    close(out, plain)
    out.square().sum().backward(), plain.square().sum().backward()
    close(x.grad, again.grad)


def test_inside_fast_a_model_computes_the_same_and_outside_it_is_its_own_again(vit):
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    plain = vit.features(vit.blocks(vit.embed(x)))
    with shortcuts.fast(vit):
        assert "forward" in vars(vit.blocks[0].attn)
        close(vit.features(vit.blocks(vit.embed(x))), plain)
    assert not any("forward" in vars(module) for module in vit.modules())


def test_what_is_trained_takes_the_plain_way(monkeypatch):
    layer = nn.Sequential(nn.Linear(3, 2))
    monkeypatch.setattr(shortcuts, "frozen_linear", lambda *args: pytest.fail("the frozen path was taken"))
    with shortcuts.fast(layer):
        layer(torch.randn(1, 3))


@pytest.mark.parametrize("adapter", ["bitfit", "full", "ia3", "bottleneck", "lora"])
def test_gradients_are_those_outside_of_fast_whatever_stands_in_the_mlp(registry, adapter):
    vit = Blocks(tiny_vit())
    registry.make("adapter", {"name": adapter})(vit)
    vit.double().eval().draw(torch.Generator().manual_seed(0))
    x, own = tokens(2, 5, 8), [p for p in vit.blocks[1].parameters() if p.requires_grad]
    plain = torch.autograd.grad(vit.blocks[1](x).square().sum(), own)
    with shortcuts.fast(vit):
        close(torch.autograd.grad(vit.blocks[1](x).square().sum(), own), plain)


@pytest.mark.parametrize("why", ["mask", "causal", "long", "training"])
def test_attention_that_is_not_short_and_plain_stays_timms(vit, monkeypatch, why):
    monkeypatch.setattr(shortcuts, "attention", lambda *args: pytest.fail("the explicit path was taken"))
    attn, x = vit.blocks[0].attn, tokens(1, 129 if why == "long" else 5, 8)
    attn.train(why == "training")
    mask = torch.ones(5, 5, dtype=torch.bool) if why == "mask" else None
    with shortcuts.fast(vit):
        out = attn(x, mask, is_causal=why == "causal")
    assert out.shape == x.shape
