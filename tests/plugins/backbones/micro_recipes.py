"""The recipes of pre-training that `micro_pretrain.py` follows, and what each of them changes in the model.

None changes the architecture that is saved: stochastic depth has no parameters, layer scale is folded into the
projections that it scales, and a prefix exit reads through the heads that are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Recipe:
    """What one pre-training does otherwise than the plain one.

    drop_path: rate at which the branches of the last block are left out in training, rising linearly from 0 at the
    first (Huang et al. 2016) · layer_scale: the first value of a learned factor for each output of each branch
    (Touvron et al. 2021, CaiT: 0.1 up to 18 blocks), 0 for none · exits: weight of the same loss after a prefix of
    blocks whose depth is drawn anew in each step (as early-exit losses, Elhoushi et al. 2024, LayerSkip; depth and
    weight are ours) · weight_decay: AdamW's · longer: so many times the steps.
    """

    drop_path: float = 0.0
    layer_scale: float = 0.0
    exits: float = 0.0
    weight_decay: float = 0.05
    longer: int = 1


RECIPES = {
    "plain": Recipe(),
    "drop_path_0.1": Recipe(drop_path=0.1),
    "drop_path_0.3": Recipe(drop_path=0.3),
    "drop_path_0.5": Recipe(drop_path=0.5),
    "layer_scale": Recipe(layer_scale=0.1),
    "prefix_exits": Recipe(exits=0.5),
    "weight_decay": Recipe(weight_decay=0.5),
    "longer": Recipe(longer=3),
}
SHIPPED = {"vit": "plain", "mixer": "drop_path_0.1"}  # why: plugins/backbones/weights/PROVENANCE.md

# What ends the two branches of a block: of a ViT's, then of a Mixer's.
ENDS = (("attn.proj", "mlp.fc2"), ("mlp_tokens.fc2", "mlp_channels.fc2"))


class Scaled(nn.Module):
    """gamma * (W x + b), a learned factor for each output.

    In a ViT this is CaiT's layer scale. The Mixer's token branch ends in a projection of tokens, so that there a
    factor belongs to a token and not to a channel: a factor for each channel could not be folded into its weights.
    """

    def __init__(self, linear: nn.Linear, initial: float) -> None:
        super().__init__()
        self.linear = linear
        self.gamma = nn.Parameter(torch.full((linear.out_features,), initial))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)"""
        return self.gamma * self.linear(x)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """The linear layer that gives the same."""
        self.linear.weight.mul_(self.gamma[:, None])
        self.linear.bias.mul_(self.gamma)
        return self.linear


def prepared(backbone: nn.Module, recipe: Recipe) -> nn.Module:
    """The backbone as it is trained. No random number is drawn."""
    stochastic_depth(backbone, recipe.drop_path)
    if recipe.layer_scale:
        for block in backbone.blocks:
            ends = ENDS[0] if hasattr(block, "attn") else ENDS[1]
            for name in ends:
                block.set_submodule(name, Scaled(block.get_submodule(name), recipe.layer_scale))
    return backbone


def stochastic_depth(backbone: nn.Module, most: float) -> None:
    """Leave the branches of blocks out at random in training: of the first never, of the last at a rate of `most`."""
    from timm.layers import DropPath

    for j, block in enumerate(backbone.blocks if most else ()):
        rate = most * j / (len(backbone.blocks) - 1)
        for name in ("drop_path1", "drop_path2") if hasattr(block, "attn") else ("drop_path",):
            setattr(block, name, DropPath(rate))


def fold(backbone: nn.Module) -> nn.Module:
    """The backbone in the shapes of the plain one, with the same outputs."""
    for block in backbone.blocks:
        for name in [name for name, module in block.named_modules() if isinstance(module, Scaled)]:
            block.set_submodule(name, block.get_submodule(name).folded())
    return backbone


@contextmanager
def after_block(backbone: nn.Module, depth: int) -> Iterator[list[Tensor]]:
    """A list that gets the tokens (B, T, D) after the first `depth` blocks in every forward pass within."""
    seen: list[Tensor] = []
    handle = backbone.blocks[depth - 1].register_forward_hook(lambda block, given, tokens: seen.append(tokens))
    try:
        yield seen
    finally:
        handle.remove()
