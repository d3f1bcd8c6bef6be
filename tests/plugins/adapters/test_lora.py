"""LoRA's start, what it adds to a layer and to a convolution, and its weight folded for evaluation."""

import pytest
import torch

from fedbench.errors import UserError
from fedbench.models.adapter import fold
from fedbench.models.backbone import Blocks
from fedbench.testing.setups import tiny_vit


def adapted(registry, model, **options):
    blocks = Blocks(model)
    registry.make("adapter", {"name": "lora", "rank": 2, "alpha": 4, **options})(blocks)
    return blocks


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


@pytest.mark.parametrize("options", [{"rank": 0}, {"dropout": 1.0}, {"alpha": 0}])
def test_impossible_options_are_refused(registry, options):
    with pytest.raises(UserError, match=f"lora: {next(iter(options))}: expected a"):
        adapted(registry, tiny_vit(), **options)
