"""(IA)^3: learned factors for keys, values and the hidden activations of the MLP (Liu et al., NeurIPS 2022)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.models.adapter import Stack, last_fc
from fedbench.models.backbone import Blocks


class Scaled(nn.Module):
    """Around a frozen linear layer; its factors start at one."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen
        self.stack: Stack | None = None

    def draw(self, generator: torch.Generator) -> None:
        """All factors one, whatever the generator."""
        for factors in self.parameters(recurse=False):
            nn.init.ones_(factors)

    def factors(self, name: str, x: Tensor) -> Tensor:
        """The module's own, or those of each row's client, in the type of x (B, ..., d): (d,) or (B, 1, ..., d)."""
        own: Tensor = getattr(self, name)
        return own.to(x.dtype) if self.stack is None else self.stack.for_rows(name, x)


class ScaledKeysValues(Scaled):
    """[q, l_k * k, l_v * v], of a layer that gives [q, k, v]. x (..., D) -> (..., 3 D)"""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__(frozen)
        self.l_k, self.l_v = (nn.Parameter(frozen.weight.new_ones(frozen.out_features // 3)) for _ in "kv")

    def forward(self, x: Tensor) -> Tensor:
        y = self.frozen(x)
        l_k, l_v = self.factors("l_k", y), self.factors("l_v", y)
        return y * torch.cat([torch.ones_like(l_k), l_k, l_v], -1)


class ScaledHidden(Scaled):
    """W_2 (l_ff * h), where h is what the MLP's activation gives. h (..., hidden) -> (..., out)"""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__(frozen)
        self.l_ff = nn.Parameter(frozen.weight.new_ones(frozen.in_features))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.frozen(x * self.factors("l_ff", x))
        return y


def ia3() -> Callable[[Blocks], None]:
    """Factors, one at first, for keys, values and the MLP's hidden activations ((IA)^3, NeurIPS 2022).

    A Mixer has neither keys nor values: there the hidden activations of both its MLPs have factors, which is ours. So
    is the place in a ViT that norms its keys, where the factors come before the norm.
    """

    def attach(blocks: Blocks) -> None:
        for name in last_fc(blocks):  # attn.proj, or the fc2 of an MLP
            for block in blocks.blocks:
                part = block.get_submodule(name.rpartition(".")[0])
                attribute, kind = ("qkv", ScaledKeysValues) if name == "attn.proj" else ("fc2", ScaledHidden)
                frozen = getattr(part, attribute, None)
                if type(frozen) is not nn.Linear:
                    raise UserError(
                        f"ia3: {type(part).__name__} has no linear layer {attribute!r}; (IA)^3 is known here for "
                        "timm's Attention, which makes queries, keys and values in one product, and for its MLPs"
                    )
                setattr(part, attribute, kind(frozen))

    return attach


@hookimpl
def fedbench_register_adapters(register):
    register("ia3", ia3)
