"""LoRA's targets in each profile, its initialisation, and the dropout every engine shares."""

import pytest
import torch

from fedbench.errors import UserError
from fedbench.models.adapter import SeededDropout, fold, seed_dropout
from fedbench.models.backbone import Blocks
from fedbench.testing.world import tiny_mixer, tiny_vit


def adapted(registry, model, **options):
    blocks = Blocks(model)
    registry.make("adapter", {"name": "lora", "rank": 2, "alpha": 4, **options})(blocks)
    return blocks


def targets(blocks):
    return sorted({name.rsplit(".", 1)[0] for name in blocks.r(0)})


def test_last_fc_of_a_vit_is_the_projection_and_the_second_mlp_layer(registry):
    assert targets(adapted(registry, tiny_vit())) == ["attn.proj", "mlp.fc2"]


def test_last_fc_of_a_mixer_is_fc2_of_both_mlps(registry):
    assert targets(adapted(registry, tiny_mixer())) == ["mlp_channels.fc2", "mlp_tokens.fc2"]


def test_reference_targets_hit_the_patch_embedding_of_a_vit_too(registry):
    blocks = adapted(registry, tiny_vit(), targets="reference")
    assert targets(blocks) == ["attn.proj", "mlp.fc2"]
    shapes = {name: tuple(p.shape) for name, p in blocks.shared().items()}
    # PEFT's form: an r-channel convolution of the same kernel, then a 1x1 convolution
    assert shapes == {"model.patch_embed.proj.lora_A": (2, 3, 4, 4), "model.patch_embed.proj.lora_B": (8, 2, 1, 1)}


def test_named_targets(registry):
    assert targets(adapted(registry, tiny_vit(), targets=["attn.qkv"])) == ["attn.qkv"]
    with pytest.raises(UserError, match=r"no module is called 'atn.proj'.*did you mean 'attn.proj'"):
        adapted(registry, tiny_vit(), targets=["atn.proj"])
    with pytest.raises(UserError, match="is a LayerNorm; LoRA adapts Linear and Conv2d"):
        adapted(registry, tiny_vit(), targets=["norm1"])


def test_a_fresh_adapter_changes_nothing_and_a_product_adds_alpha_over_r(registry):
    model = tiny_vit()
    layer = model.blocks[0].mlp.fc2
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    blocks = adapted(registry, model)
    blocks.draw(torch.Generator().manual_seed(0))
    lora = blocks.blocks[0].mlp.fc2
    x = torch.randn(5, 16)
    torch.testing.assert_close(lora(x), x @ weight.T + bias)
    with torch.no_grad():
        lora.lora_B.normal_()
    torch.testing.assert_close(lora(x), x @ (weight + 2.0 * lora.lora_B @ lora.lora_A).T + bias)


def test_a_folded_adapter_computes_the_same_until_its_values_change(registry):
    blocks = adapted(registry, tiny_vit()).double()
    lora, x = blocks.blocks[0].mlp.fc2, torch.randn(5, 16, dtype=torch.float64)
    with torch.no_grad():
        lora.lora_B.normal_()
        plain = lora(x)
        fold(blocks)
        torch.testing.assert_close(lora(x), plain, rtol=1e-12, atol=1e-12)
        lora.lora_A.mul_(2)
        torch.testing.assert_close(lora(x), 2 * plain - (x @ lora.weight.T + lora.bias), rtol=1e-12, atol=1e-12)


def test_a_folded_adapter_stands_aside_where_it_is_trained(registry):
    blocks = adapted(registry, tiny_vit())
    fold(blocks)
    blocks.blocks[0].mlp.fc2(torch.randn(5, 16)).sum().backward()
    assert blocks.blocks[0].mlp.fc2.lora_B.grad.abs().sum() > 0


def test_a_convolution_with_an_adapter_is_the_sum_of_two_paths(registry):
    blocks = adapted(registry, tiny_vit(), targets="reference")
    blocks.draw(torch.Generator().manual_seed(0))
    conv = blocks.model.patch_embed.proj
    with torch.no_grad():
        conv.lora_B.normal_()
    x = torch.randn(2, 3, 8, 8)
    kernel = conv.frozen.weight + 2.0 * torch.einsum("or,rihw->oihw", conv.lora_B[:, :, 0, 0], conv.lora_A)
    expected = torch.nn.functional.conv2d(x, kernel, conv.frozen.bias, stride=4)
    torch.testing.assert_close(conv(x), expected, rtol=1e-4, atol=1e-5)


def test_dropout_is_seeded_scaled_and_off_without_a_generator():
    dropout = SeededDropout(0.25)
    x = torch.ones(4000)
    assert torch.equal(dropout(x), x)
    dropout.generator = torch.Generator().manual_seed(0)
    y = dropout(x)
    assert sorted(y.unique().tolist()) == pytest.approx([0.0, 1 / 0.75])
    # 4,000 Bernoulli draws: 4.5 standard deviations are a false alarm of 7e-6
    assert abs((y == 0).sum().item() - 1000) < 4.5 * (4000 * 0.25 * 0.75) ** 0.5


def test_seed_dropout_reaches_every_adapter(registry):
    blocks = adapted(registry, tiny_vit(), dropout=0.5)
    generator = torch.Generator()
    seed_dropout(blocks, generator)
    found = [m.generator for m in blocks.modules() if isinstance(m, SeededDropout)]
    assert len(found) == 8 and all(g is generator for g in found)


@pytest.mark.parametrize("options", [{"rank": 0}, {"dropout": 1.0}])
def test_impossible_options_are_refused(registry, options):
    with pytest.raises(UserError, match="rank must be at least 1"):
        adapted(registry, tiny_vit(), **options)
