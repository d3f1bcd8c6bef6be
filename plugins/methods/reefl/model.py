"""ReeFL's model: a backbone whose class token passes through one shared module after every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from fedbench.errors import NotApplicable
from fedbench.models.backbone import Blocks
from fedbench.models.globalmodel import GlobalModel
from fedbench.types import Exit

HEADS, WIDTH, MLP_RATIO = 8, 16, 1.35  # of the released configuration


class Ree(nn.Module):
    """Z = Ree([m, c_1, ..., c_b] + pos): one pre-norm transformer block over the class tokens of the layers so far.

    m: `meta` (1, D) · pos: `positions` (L + 1, D), the first of which is m's · `norm`: the head's LayerNorm, whose
    linear layer is the classifier. Attention has 8 heads of 2 channels each, and its products are scaled by 16^(-1/2),
    the width of all heads, as in the released code; the MLP has int(1.35 D) units and GELU.
    """

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        hidden = int(MLP_RATIO * dim)
        self.meta = nn.Parameter(torch.empty(1, dim))
        self.positions = nn.Parameter(torch.empty(layers + 1, dim))
        self.norm1, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * WIDTH), nn.Linear(WIDTH, dim)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm = nn.LayerNorm(dim)

    def draw(self, generator: Generator) -> None:
        """As the released code draws it: weights, m and pos from a normal of deviation 0.02, cut off at 2; biases 0,
        norms the identity."""
        linear = (self.qkv, self.proj, self.fc1, self.fc2)
        for weight in (self.meta, self.positions, *(layer.weight for layer in linear)):
            nn.init.trunc_normal_(weight, std=0.02, generator=generator)
        for layer in linear:
            nn.init.zeros_(layer.bias)
        for norm in (self.norm1, self.norm2, self.norm):
            norm.reset_parameters()

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, b, D) -> Z (B, b + 1, D): m's first, that of the last token last."""
        B, b, _ = tokens.shape
        T = torch.cat([self.meta.expand(B, 1, -1), tokens], dim=1) + self.positions[: b + 1]
        T = T + self._attended(self.norm1(T))
        mlp: Tensor = self.fc2(F.gelu(self.fc1(self.norm2(T))))
        return T + mlp

    def _attended(self, T: Tensor) -> Tensor:
        """By explicit products, which are few, and which torch counts on every device."""
        q, k, v = self.qkv(T).unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)  # (B, heads, b + 1, 2)
        mixed = (q @ k.mT * WIDTH**-0.5).softmax(-1) @ v
        attended: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return attended


class ReeBlocks(Blocks):
    """A backbone whose class token passes through Ree after every layer, and which exits through it.

    Ree stands in timm's model beside its parts, so that it is shared by all clients: `model.ree.meta` and so on.
    """

    def __init__(self, blocks: Blocks, history: str) -> None:
        if getattr(blocks.model, "cls_token", None) is None:
            raise NotApplicable(
                f"{type(blocks.model).__name__} has no class token, which ReeFL rewrites after every layer and reads "
                "at its exits"
            )
        super().__init__(blocks.model, blocks.origin)
        self.classifiers, self.history = blocks.classifiers, history
        like = next(self.model.parameters())
        self.model.ree = Ree(self.num_features, self.num_layers).to(like.device, like.dtype)

    @property
    def ree(self) -> Ree:
        ree = self.model.ree
        assert isinstance(ree, Ree)
        return ree

    def read(self, x: Tensor, layers: Sequence[int], depths: Sequence[int]) -> list[Tensor]:
        """(B, 3, H, W) -> what the classifier reads (B, D) after each of the depths: LayerNorm(Z_0 + c_b).

        The backbone's own final norm has no part in it.
        """
        tokens, found = self.embed(x), {}
        before: list[Tensor] = []
        for depth, j in enumerate(layers, start=1):
            tokens = self.blocks[j](tokens)
            c_b = tokens[:, 0]  # (B, D)
            Z = self.ree(torch.stack([*before, c_b], dim=1))  # (B, b + 1, D)
            if depth in depths:
                found[depth] = self.ree.norm(Z[:, 0] + c_b)
            tokens = torch.cat([Z[:, -1:], tokens[:, 1:]], dim=1)
            before.append(c_b if self.history == "raw" else Z[:, -1])
        return [found[depth] for depth in depths]

    def forward(self, x: Tensor, layers: Sequence[int], exits: Sequence[Exit]) -> list[Tensor]:
        """(B, 3, H, W) -> the logits (B, C) of every exit."""
        features = self.read(x, layers, [exit.depth for exit in exits])
        return [self.classifiers[exit.classifier](z) for exit, z in zip(exits, features, strict=True)]


@dataclass(frozen=True)
class Recurrent(GlobalModel):
    """The global model, as deep as the deepest client that ever came back."""

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D): what the classifier reads at the deepest exit."""
        assert isinstance(self.blocks, ReeBlocks)
        return self.blocks.read(x, self.layers, [self.last.depth])[0]
