"""Bottleneck adapters behind the sub-layers (Houlsby et al., ICML 2019; behind the MLP alone: Pfeiffer et al., EACL
2021)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.models.adapter import Stack, last_fc
from fedbench.models.backbone import Blocks
from fedbench.options import Count, judged

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}
STD = 0.01  # of the weights at the start, cut off at two of them (Houlsby et al., Sec. 3.6; their code takes 0.001)


class Bottleneck(nn.Module):
    """y + U f(D y + b_D) + b_U, where y is what a frozen last layer of a sub-layer gives. x (..., in) -> (..., out)

    across: whether y is transposed, (..., channels, tokens), as in a Mixer's MLP over tokens; the adapter is for the
    channels there too.
    """

    def __init__(
        self, frozen: nn.Linear, width: int, size: int, activation: Callable[[Tensor], Tensor], across: bool
    ) -> None:
        super().__init__()
        self.frozen, self.activation, self.across = frozen, activation, across
        new = frozen.weight.new_zeros
        self.down, self.down_bias = nn.Parameter(new(size, width)), nn.Parameter(new(size))
        self.up, self.up_bias = nn.Parameter(new(width, size)), nn.Parameter(new(width))
        self.stack: Stack | None = None

    def draw(self, generator: torch.Generator) -> None:
        """The paper's start near the identity: weights from a normal distribution cut off at two of its STD."""
        for weight in (self.down, self.up):
            nn.init.trunc_normal_(weight, std=STD, a=-2 * STD, b=2 * STD, generator=generator)
        for bias in (self.down_bias, self.up_bias):
            nn.init.zeros_(bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.frozen(x)
        tokens = y.mT if self.across else y
        added = self._added(tokens)
        return y + (added.mT if self.across else added)

    def _added(self, y: Tensor) -> Tensor:
        """U f(D y + b_D) + b_U of each row's client. (B, ..., width) -> the same shape"""
        stack = self.stack
        if stack is None:
            return self._one(y, dict(self.named_parameters(recurse=False)))
        if not stack.even:
            return stack.map(y, self._one)
        own = stack.values
        rows = y.reshape(len(own["down"]), -1, y.shape[-1])  # (n, B T, width)
        low = self.activation(torch.bmm(rows, own["down"].mT) + own["down_bias"][:, None])
        return (torch.bmm(low, own["up"].mT) + own["up_bias"][:, None]).view_as(y)

    def _one(self, y: Tensor, own: dict[str, Tensor]) -> Tensor:
        low = self.activation(F.linear(y, own["down"], own["down_bias"]))
        return F.linear(low, own["up"], own["up_bias"])


@judged("bottleneck")
def bottleneck(
    size: Count = 8, activation: Literal["gelu", "relu", "silu"] = "gelu", where: Literal["both", "mlp"] = "both"
) -> Callable[[Blocks], None]:
    """A small MLP with a skip connection behind each sub-layer, before the residual sum (Houlsby et al., ICML 2019).

    Args:
        size: the width of its hidden layer.
        activation: gelu, relu or silu.
        where: `both` sub-layers, or `mlp`, behind the second alone (Pfeiffer et al., EACL 2021). Houlsby et al. train
            the layer norms too; here they stay frozen.
    """

    def attach(blocks: Blocks) -> None:
        width = blocks.num_features
        for name in last_fc(blocks)[0 if where == "both" else 1 :]:
            path, _, attribute = name.rpartition(".")
            for block in blocks.blocks:
                part, across = block.get_submodule(path), path == "mlp_tokens"
                frozen = getattr(part, attribute, None)
                if type(frozen) is not nn.Linear:
                    raise UserError(f"bottleneck: {name} of {type(block).__name__} is no Linear; it stands behind one")
                setattr(part, attribute, Bottleneck(frozen, width, size, ACTIVATIONS[activation], across))

    return attach


@hookimpl
def fedbench_register_adapters(register):
    register("bottleneck", bottleneck)
