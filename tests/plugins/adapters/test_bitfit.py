"""BitFit's biases: which they are, and that they are added as the frozen ones were."""

import pytest
import torch
from torch.nn import functional as F

from fedbench.errors import UserError
from fedbench.models.adapter import Stack, stacked
from fedbench.testing.setups import tiny_vit


def test_every_linear_layer_and_norm_of_a_layer_has_its_bias_trained_and_nothing_else(adapted):
    blocks = adapted(tiny_vit(), name="bitfit")
    modules = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    assert sorted(blocks.r(2)) == sorted(f"{name}.bitfit_bias" for name in modules)
    assert sorted(blocks.shared()) == ["head.bias", "head.weight"]


def test_each_client_adds_its_own_biases_to_its_rows(adapted):
    block = adapted(tiny_vit(), name="bitfit").blocks[0]
    x, b = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(2, 8, dtype=torch.float64)
    fc, norm = block.attn.proj, block.norm1
    values = {"attn.proj.bitfit_bias": b, "norm1.bitfit_bias": -b}
    with stacked(block, Stack(values, [1, 2], [])):
        for n, rows in ((0, slice(0, 1)), (1, slice(1, 3))):
            torch.testing.assert_close(fc(x)[rows], F.linear(x[rows], fc.weight, b[n]))
            torch.testing.assert_close(norm(x)[rows], F.layer_norm(x[rows], (8,), norm.weight, -b[n], 1e-6))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["norm"], "'norm' stands in no layer"),
        (["patch_embed.proj"], "'proj' stands in no layer"),
        (["mlp.act"], "'act', a GELU, is no Linear or LayerNorm with a bias"),
        (["mlp.fc3"], "no module is called 'mlp.fc3'"),
    ],
)
def test_what_has_no_bias_in_the_layers_is_refused(adapted, targets, message):
    with pytest.raises(UserError, match=message):
        adapted(tiny_vit(), name="bitfit", targets=targets)
