"""Bottleneck adapters: what they add behind a sub-layer, for channels also where a Mixer's MLP mixes tokens."""

import pytest
import torch
from torch.nn import functional as F

from fedbench.errors import UserError
from fedbench.testing.setups import tiny_mixer, tiny_vit


@pytest.mark.parametrize("name", ["mlp_tokens", "mlp_channels"])
def test_it_is_a_small_mlp_over_channels_with_a_skip_connection(adapted, name):
    block = adapted(tiny_mixer(), name="bottleneck", size=2).blocks[0]
    part, own = getattr(block, name), getattr(block, name).fc2
    with torch.no_grad():
        for p in (own.down, own.down_bias, own.up, own.up_bias):
            p.normal_()
    x = torch.randn(3, 8, 4, dtype=torch.float64) if name == "mlp_tokens" else torch.randn(3, 4, 8).double()
    y = own.frozen(part.act(part.fc1(x)))
    y = y.mT if name == "mlp_tokens" else y
    wanted = y + F.gelu(y @ own.down.T + own.down_bias) @ own.up.T + own.up_bias
    torch.testing.assert_close(part(x), wanted.mT if name == "mlp_tokens" else wanted)


def test_it_starts_as_the_paper_draws_it(adapted):
    own = adapted(tiny_vit(dim=64), name="bottleneck", size=32).blocks[0].mlp.fc2
    weights = torch.cat([own.down.flatten(), own.up.flatten()])  # 4,096 numbers
    # a normal distribution cut off at two standard deviations has 0.880 of its own
    assert weights.abs().max() <= 0.02 and weights.std().item() == pytest.approx(0.0088, rel=0.05)
    assert not own.down_bias.any() and not own.up_bias.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size: expected a whole number of at least 1, got 0"),
        ({"activation": "tanh"}, 'activation: expected "gelu", "relu" or "silu", got "tanh"'),
        ({"where": "attn"}, 'where: expected "both" or "mlp", got "attn"'),
    ],
)
def test_impossible_options_are_refused(adapted, options, message):
    with pytest.raises(UserError, match=message):
        adapted(tiny_vit(), name="bottleneck", **options)
