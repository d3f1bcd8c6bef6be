"""Layers can be left out, and nothing frozen is ever trained."""

import pytest
import torch
from torch import nn

from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import Blocks, Plain, body_of, copy_of, in_layers
from fedbench.testing.setups import tiny_mixer, tiny_vit
from fedbench.types import Exit


@pytest.mark.parametrize("make", [tiny_vit, tiny_mixer])
def test_all_layers_give_what_timm_gives(make):
    model = make()
    blocks = Blocks(model)
    blocks.add_classifier("head", 3)
    x = torch.randn(2, 3, 8, 8)
    (logits,) = blocks(x, range(4), [Exit(4, "head")])
    torch.testing.assert_close(logits, blocks.classifiers["head"](model(x)))


@pytest.mark.parametrize("make", [tiny_vit, tiny_mixer])
def test_some_layers_are_a_shallower_model_in_the_original_order(make):
    """FedRA's client is the backbone with the other layers taken out (Sec. 3.5, step 2)."""
    model, shallow = make(), make()
    shallow.blocks = nn.Sequential(shallow.blocks[1], shallow.blocks[3])
    blocks = Blocks(model)
    blocks.add_classifier("head", 3)
    x = torch.randn(2, 3, 8, 8)
    (logits,) = blocks(x, [1, 3], [Exit(2, "head")])
    torch.testing.assert_close(logits, blocks.classifiers["head"](shallow(x)))


def test_exits_read_the_features_after_their_depth():
    blocks = Blocks(tiny_vit())
    for name in ("exit1", "head"):
        blocks.add_classifier(name, 3)
    x = torch.randn(2, 3, 8, 8)
    first, last = blocks(x, [0, 2], [Exit(1, "exit1"), Exit(2, "head")])
    tokens = blocks.blocks[0](blocks.embed(x))
    torch.testing.assert_close(first, blocks.classifiers["exit1"](blocks.features(tokens)))
    torch.testing.assert_close(last, blocks.classifiers["head"](blocks.features(blocks.blocks[2](tokens))))


def test_only_classifiers_are_trainable_without_adapters():
    blocks = Blocks(tiny_vit())
    blocks.add_classifier("head", 3)
    assert set(blocks.shared()) == {"head.weight", "head.bias"}
    assert all(blocks.r(j) == {} for j in range(4))


def test_a_draw_depends_on_its_generator_alone():
    def drawn():
        blocks = Blocks(tiny_vit())
        blocks.add_classifier("head", 3)
        blocks.draw(torch.Generator().manual_seed(3))
        return blocks.shared()["head.weight"]

    assert torch.equal(drawn(), drawn())


def test_what_cannot_be_cut_into_layers_is_refused():
    with pytest.raises(UserError, match="cannot be cut into layers.*vit_base_patch16_224"):
        Blocks(nn.Linear(2, 2))


def test_frozen_bytes_count_embedding_norm_and_the_layers_held():
    blocks = Blocks(tiny_vit())
    per_layer = sum(p.numel() for p in blocks.blocks[0].parameters()) * 4
    everything = sum(p.numel() for p in blocks.model.parameters()) * 4
    assert blocks.frozen_bytes(4) == everything
    assert blocks.frozen_bytes(4) - blocks.frozen_bytes(1) == 3 * per_layer


def test_tokens_are_patches_and_the_class_token():
    assert Blocks(tiny_vit()).tokens(8) == 5 and Blocks(tiny_mixer()).tokens(8) == 4


def test_a_model_reads_features_where_nothing_stands_below_its_classifiers_that_may_change(registry):
    model = Blocks(tiny_vit())
    model.add_classifier("head", 3)
    last, L = [Exit(model.num_layers, "head")], model.num_layers
    x = torch.randn(2, 3, 8, 8)
    assert model.reads_features(range(L), last)
    assert torch.equal(model(model.pooled(x), range(L), last)[0], model(x, range(L), last)[0])
    assert not model.reads_features(range(L - 1), [Exit(L - 1, "head")])
    assert not model.reads_features(range(L), [Exit(1, "head"), *last])
    model.bases["blocks.0.mlp.fc2.weight"] = torch.zeros(1)  # something is added to it
    assert not model.reads_features(range(L), last)
    model.bases.clear()
    registry.make("adapter", {"name": "lora"})(model)
    assert not model.reads_features(range(L), last)


def test_what_are_features_already_stay_as_they_are():
    features = torch.randn(2, 8)
    assert Blocks(tiny_vit()).embed(features) is features


# --- models that are used as a whole ------------------------------------------------------------------------------


class Pooled(nn.Module):
    """Anything whose forward pass gives features."""

    num_features = 5

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.conv = nn.Conv2d(3, 5, 3)

    def forward(self, x):
        return self.scale * self.conv(x).mean((2, 3))


def test_a_model_without_layers_to_cut_is_used_as_a_whole():
    body = body_of(Pooled())
    assert isinstance(body, Plain) and body.num_layers == 1
    body.add_classifier("head", 3)
    assert not any(p.requires_grad for p in body.model.parameters())
    assert body.classifiers["head"](body.pooled(torch.randn(2, 3, 8, 8))).shape == (2, 3)
    with pytest.raises(NotApplicable, match="Pooled cannot be cut into layers"):
        in_layers(body)


@pytest.mark.parametrize("make", [tiny_vit, tiny_mixer])
def test_pooled_features_are_those_after_all_layers(make):
    blocks = body_of(make())
    assert isinstance(blocks, Blocks) and in_layers(blocks) is blocks
    blocks.add_classifier("head", 3)
    x = torch.randn(2, 3, 8, 8)
    (logits,) = blocks(x, range(4), [Exit(4, "head")])
    assert torch.equal(blocks.classifiers["head"](blocks.pooled(x)), logits)
    assert torch.allclose(blocks.pooled(x), blocks.model(x))


def test_running_statistics_are_refused_and_group_norm_is_named():
    model = Pooled()
    model.norm = nn.BatchNorm2d(3)
    with pytest.raises(UserError, match="running statistics.*resnet50_gn"):
        body_of(model)


def test_a_copy_shares_neither_weights_nor_hooks_and_takes_what_it_is_given():
    model = tiny_vit()
    kept = model.blocks[0]
    copied = copy_of(model, {id(kept): kept})
    assert copied.blocks[0] is kept
    x, before = torch.randn(2, 3, 8, 8), {name: value.clone() for name, value in model.state_dict().items()}
    torch.testing.assert_close(copied(x), model(x), rtol=0, atol=0)
    heard = []
    copied.blocks[1].register_forward_hook(lambda *given: heard.append(1))
    with torch.no_grad():
        copied.blocks[1].attn.qkv.weight.zero_()
    model(x)
    assert not heard and all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    copied(x)
    assert heard
