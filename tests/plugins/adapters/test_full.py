"""Full fine-tuning: the gradients of the model's own weights, and more than one client at once."""

import pytest
import torch
from torch import nn

from fedbench.errors import UserError
from fedbench.models.adapter import Stack, stacked
from fedbench.models.backbone import Blocks
from fedbench.testing.setups import tiny_mixer, tiny_vit


@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
def test_gradients_are_those_of_the_weights_themselves(adapted, model):
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    plain = Blocks(model()).double().eval()
    plain.blocks.requires_grad_(True)
    plain.pooled(x).square().sum().backward()
    wanted = {name: weight.grad for name, weight in plain.blocks.named_parameters()}
    blocks = adapted(model(), name="full")
    blocks.pooled(x).square().sum().backward()
    found = {name.replace("full_", ""): weight.grad for name, weight in blocks.blocks.named_parameters()}
    assert found.keys() == wanted.keys()  # a layer is nothing but linear layers and norms
    for name, grad in wanted.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("sizes", [[2, 2], [1, 3]])
@pytest.mark.parametrize("name", ["norm1", "attn.proj", "mlp.fc1"])
def test_every_client_has_its_own_weights_in_one_pass(adapted, name, sizes):
    block = adapted(tiny_vit(), name="full").blocks[0]
    module = block.get_submodule(name)
    own = {key: torch.stack([value.detach(), 1.5 * value.detach()]) for key, value in module.named_parameters()}
    x = torch.randn(4, 5, 8, dtype=torch.float64)
    wanted = []
    for i, part in enumerate(x.split(sizes)):
        wanted.append(module.computed(part, own["full_weight"][i], own["full_bias"][i]))
    with torch.no_grad(), stacked(block, Stack({f"{name}.{key}": rows for key, rows in own.items()}, sizes, [])):
        torch.testing.assert_close(module(x), torch.cat(wanted), rtol=1e-12, atol=1e-12)


def test_a_model_without_linear_layers_is_refused(registry):
    blocks = Blocks(tiny_vit())
    blocks.model.blocks = nn.Sequential(*(nn.Identity() for _ in blocks.blocks))
    with pytest.raises(UserError, match="have no linear layer or norm"):
        registry.make("adapter", {"name": "full"})(blocks)
