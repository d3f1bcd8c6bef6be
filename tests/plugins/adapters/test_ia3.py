"""(IA)^3's factors: on keys, values and the MLP's hidden activations, and on nothing else."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbench.errors import UserError
from fedbench.testing.setups import tiny_mixer, tiny_vit


def test_a_layer_with_factors_equals_the_paper_s_formulas(adapted):
    """softmax(Q (l_k K)^T / sqrt d) (l_v V), and (l_ff gelu(W_1 x)) W_2."""
    block = adapted(tiny_vit(), name="ia3").blocks[0]
    with torch.no_grad():
        for l in (block.attn.qkv.l_k, block.attn.qkv.l_v, block.mlp.fc2.l_ff):  # noqa: E741
            l.uniform_(0.5, 2)
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    q, k, v = block.attn.qkv.frozen(x).split(8, -1)
    heads = [part.view(3, 5, 2, 4).transpose(1, 2) for part in (q, k * block.attn.qkv.l_k, v * block.attn.qkv.l_v)]
    mixed = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block.attn(x), block.attn.proj(mixed))
    hidden = F.gelu(block.mlp.fc1(x)) * block.mlp.fc2.l_ff
    torch.testing.assert_close(block.mlp(x), block.mlp.fc2.frozen(hidden))


def test_a_mixer_has_factors_in_both_of_its_mlps(adapted):
    blocks = adapted(tiny_mixer(), name="ia3")
    shapes = {name: len(p) for name, p in blocks.r(0).items()}
    assert shapes == {"mlp_tokens.fc2.l_ff": 4, "mlp_channels.fc2.l_ff": 32}


def test_another_attention_is_refused(adapted):
    model = tiny_vit()
    model.blocks[1].attn.qkv = nn.Identity()
    with pytest.raises(UserError, match="Attention has no linear layer 'qkv'"):
        adapted(model, name="ia3")
