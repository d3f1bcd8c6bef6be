"""Visual Prompt Tuning: learned tokens next to those of the image (Jia et al., ECCV 2022), shallow and deep."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.models.adapter import Stack
from fedbench.models.backbone import Blocks
from fedbench.options import Count, judged

NORMAL_STD = 0.02  # as timm draws a ViT's position embeddings


class Prompts(nn.Module):
    """p learned tokens (p, D), standing behind the first `at` of the others, around a frozen norm.

    bound: of the uniform draw they start from, or None for a normal one.
    """

    def __init__(self, frozen: nn.Module, at: int, shape: tuple[int, int], like: Tensor, bound: float | None) -> None:
        super().__init__()
        self.frozen, self.at, self.bound = frozen, at, bound
        self.prompts = nn.Parameter(like.new_zeros(shape))
        self.stack: Stack | None = None

    def draw(self, generator: torch.Generator) -> None:
        if self.bound is None:
            nn.init.normal_(self.prompts, std=NORMAL_STD, generator=generator)
        else:
            nn.init.uniform_(self.prompts, -self.bound, self.bound, generator=generator)

    def own(self, x: Tensor) -> Tensor:
        """The prompts of every row's client, in the type of x (B, T, D): (B, p, D)."""
        if self.stack is None:
            return self.prompts.to(x.dtype).expand(len(x), -1, -1)
        return self.stack.for_rows("prompts", x)


class Shallow(Prompts):
    """Before the first layer: [x_0, P, E_0] (VPT-Shallow, Sec. 3.2). (B, T, D) -> (B, T + p, D)"""

    def forward(self, x: Tensor) -> Tensor:
        x = self.frozen(x)
        return torch.cat([x[:, : self.at], self.own(x), x[:, self.at :]], 1)


class Deep(Prompts):
    """A layer's own prompts, where its first norm reads the tokens: [x, P_j, E] in place of [x, _, E]
    (VPT-Deep, Sec. 3.2).

    The layer adds what attention makes of them to what stood there before, and not to P_j; nobody reads that sum: the
    next layer puts its own prompts there, and the classifiers see none (`Without`). (B, T + p, D) -> the same shape
    """

    def forward(self, x: Tensor) -> Tensor:
        rest = x[:, self.at + len(self.prompts) :]
        normed: Tensor = self.frozen(torch.cat([x[:, : self.at], self.own(x), rest], 1))
        return normed


class Slots(nn.Module):
    """p places before the first layer, for the prompts that every layer brings. (B, T, D) -> (B, T + p, D)"""

    def __init__(self, frozen: nn.Module, at: int, p: int) -> None:
        super().__init__()
        self.frozen, self.at, self.p = frozen, at, p

    def forward(self, x: Tensor) -> Tensor:
        x = self.frozen(x)
        return torch.cat([x[:, : self.at], x.new_zeros(len(x), self.p, x.shape[-1]), x[:, self.at :]], 1)


class Without(Slots):
    """Behind the last layer: classifiers read the model's own tokens alone. (B, T + p, D) -> (B, T, D)

    Where only the class token is left of them, it stays.
    """

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.frozen(torch.cat([x[:, : self.at], x[:, self.at + self.p :]], 1))
        return normed


@judged("vpt")
def vpt(
    prompts: Count = 10, deep: bool = False, init: Literal["uniform", "normal"] = "uniform"
) -> Callable[[Blocks], None]:
    """Learned tokens next to those of the image (VPT, ECCV 2022): before the first layer, or new ones in every layer.

    Args:
        prompts: how many.
        deep: every layer has its own, in place of those of the layer below.
        init: `uniform` (within sqrt(6 / (3 P^2 + D)) for patches of P x P pixels, as the paper's code) or `normal`
            (standard deviation 0.02). For a ViT; the paper's dropout of prompts is not offered.
    """

    def attach(blocks: Blocks) -> None:
        model: Any = blocks.model  # a timm ViT, whose parts mypy does not know
        _require_vit(blocks, deep)
        block: Any
        D, at = blocks.num_features, getattr(model, "num_prefix_tokens", 1)
        height, width = model.patch_embed.patch_size
        bound = math.sqrt(6 / (3 * height * width + D)) if init == "uniform" else None
        options = (at, (prompts, D), next(model.parameters()), bound)
        if deep:
            model.norm_pre = Slots(model.norm_pre, at, prompts)
            for block in blocks.blocks:
                block.norm1 = Deep(block.norm1, *options)
        else:
            model.norm_pre = Shallow(model.norm_pre, *options)
            for block in blocks.blocks:
                if hasattr(block.attn, "num_prefix_tokens"):  # tokens without a rotary position
                    block.attn.num_prefix_tokens += prompts
        model.norm = Without(model.norm, at, prompts)

    return attach


def _require_vit(blocks: Blocks, deep: bool) -> None:
    """Raises UserError where prompts have no place."""
    model = blocks.model
    kind = type(model).__name__
    if not all(hasattr(model, part) for part in ("_pos_embed", "norm_pre")) or hasattr(model, "stem"):
        raise UserError(
            f"vpt: a {kind} has no place for prompts, which are tokens next to those of the image; they are for a "
            "VisionTransformer (try vit_base_patch16_224)"
        )
    if deep and (odd := {type(block).__name__ for block in blocks.blocks} - {"Block"}):
        raise UserError(
            f"vpt: the layers of this {kind} are {odd.pop()}, and prompts in every layer (deep: true) are for timm's "
            "Block, whose first norm reads all tokens; try deep: false"
        )


@hookimpl
def fedbench_register_adapters(register):
    register("vpt", vpt)
