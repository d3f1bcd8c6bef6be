"""LoRA by loralib on configurable targets (Hu et al., arXiv 2106.09685)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import loralib
import torch
from torch import Tensor, nn

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.models.adapter import LowRank, SeededDropout, Stack, Targets, resolve_targets
from fedbench.models.backbone import Blocks
from fedbench.models.kernels import frozen_linear, low_rank_linear
from fedbench.options import Count, Positive, Range, judged


class LoRALinear(loralib.Linear):
    """y = W x + (alpha / r) B A dropout(x), around the frozen W and bias of an existing layer. x (..., in) ->
    (..., out)."""

    def __init__(self, frozen: nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        super().__init__(
            frozen.in_features,
            frozen.out_features,
            r=rank,
            lora_alpha=alpha,
            bias=frozen.bias is not None,
            merge_weights=False,
        )
        self.weight, self.bias = frozen.weight, frozen.bias
        self.lora_dropout = SeededDropout(dropout)
        self.stack: Stack | None = None
        self._folded: tuple[Tensor, tuple] | None = None

    def draw(self, generator: torch.Generator) -> None:
        """loralib's own initialisation: A uniform (Kaiming, a = sqrt 5), B zero."""
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5), generator=generator)
        nn.init.zeros_(self.lora_B)

    def low_rank(self) -> LowRank:
        return LowRank(self.weight, self.bias, self.lora_A, self.lora_B, self.lora_alpha, self.lora_dropout.p)

    def fold(self) -> None:
        """Keep W + (alpha / r) B A, which stands for both until A or B changes; for evaluation, without dropout."""
        with torch.no_grad():
            self._folded = self.weight + self.scaling * self.lora_B @ self.lora_A, self._version()

    def is_folded(self) -> bool:
        """Whether what was folded still stands."""
        return self._folded is not None and self._folded[1] == self._version() and not torch.is_grad_enabled()

    def _version(self) -> tuple:
        return tuple((id(p), p._version) for p in (self.lora_A, self.lora_B))

    def forward(self, x: Tensor) -> Tensor:
        if self.stack is None:
            folded = self._folded if self.is_folded() else None
            return super().forward(x) if folded is None else frozen_linear(x, folded[0], self.bias)
        own = self.stack.values
        if self.stack.even and self.lora_dropout.p == 0:
            return low_rank_linear(x, self.weight, self.bias, own["lora_A"], own["lora_B"], self.scaling)
        return frozen_linear(x, self.weight, self.bias) + self.scaling * self._products(x, self.stack)

    def _products(self, x: Tensor, stack: Stack) -> Tensor:
        """B_n A_n dropout(x_n) for every client n of the stack."""
        x = self.lora_dropout(x, stack)
        if not stack.even:
            return stack.map(x, lambda part, own: part @ own["lora_A"].T @ own["lora_B"].T)
        A = stack.values["lora_A"]
        rows = x.reshape(len(A), -1, x.shape[-1])  # (n, B T, in)
        low = torch.bmm(rows, A.mT)
        return torch.bmm(low, stack.values["lora_B"].mT).reshape(*x.shape[:-1], -1)


class LoRAConv2d(nn.Module):
    """PEFT's form of LoRA for a convolution: an r-channel convolution of the same geometry, then a 1x1 convolution.

    x (B, in, H, W) -> (B, out, H', W'). loralib's ConvLoRA factorises the kernel in another way.
    """

    def __init__(self, frozen: nn.Conv2d, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.frozen, self.alpha, self.scaling = frozen, alpha, alpha / rank
        self.lora_dropout = SeededDropout(dropout)
        self.lora_A = nn.Parameter(torch.empty(rank, frozen.in_channels, *frozen.kernel_size))
        self.lora_B = nn.Parameter(torch.empty(frozen.out_channels, rank, 1, 1))
        self.stack: Stack | None = None

    def draw(self, generator: torch.Generator) -> None:
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5), generator=generator)
        nn.init.zeros_(self.lora_B)

    def low_rank(self) -> LowRank:
        frozen = self.frozen
        return LowRank(frozen.weight, frozen.bias, self.lora_A, self.lora_B, self.alpha, self.lora_dropout.p)

    def forward(self, x: Tensor) -> Tensor:
        own: dict[str, Tensor] = {"lora_A": self.lora_A, "lora_B": self.lora_B}
        dropped = self.lora_dropout(x, self.stack)
        low = self._product(dropped, own) if self.stack is None else self.stack.map(dropped, self._product)
        return self.frozen(x) + self.scaling * low

    def _product(self, x: Tensor, own: dict[str, Tensor]) -> Tensor:
        conv = self.frozen
        low = nn.functional.conv2d(x, own["lora_A"], None, conv.stride, conv.padding, conv.dilation)
        return nn.functional.conv2d(low, own["lora_B"])


@judged("lora")
def lora(
    rank: Count = 8,
    alpha: Positive = 8.0,
    dropout: Annotated[float, Range(0, below=1)] = 0.0,
    targets: Targets = "last_fc",
) -> Callable[[Blocks], None]:
    """Low-rank adapters B A in the target layers, scaled by alpha / rank, with dropout on their input.

    targets: `last_fc` (the last fully connected layer of each sub-layer: attn.proj and mlp.fc2 in a ViT),
    `reference` (that, and the patch embedding's convolution, as the FedRA authors' code), or a list of module
    names.
    """

    def attach(blocks: Blocks) -> None:
        places = resolve_targets(blocks, targets)
        most = max((_full_rank(getattr(parent, attribute)) for parent, attribute in places), default=rank)
        if 0 < most < rank:
            raise UserError(
                f"lora: rank {rank:,} is above {most:,}, the smaller side of the largest target: no product has a "
                "higher rank",
                option="rank",
            )
        for parent, attribute in places:
            frozen = getattr(parent, attribute)
            kinds = {nn.Linear: LoRALinear, nn.Conv2d: LoRAConv2d}
            if type(frozen) not in kinds:
                raise UserError(
                    f"lora: {attribute!r} is a {type(frozen).__name__}; LoRA adapts Linear and Conv2d layers"
                )
            setattr(parent, attribute, kinds[type(frozen)](frozen, rank, alpha, dropout))

    return attach


def _full_rank(frozen: nn.Module) -> int:
    """The highest rank that a change of the weight (out, in, ...) can have; 0 without one."""
    weight = getattr(frozen, "weight", None)
    return min(weight.flatten(1).shape) if isinstance(weight, Tensor) and weight.dim() > 1 else 0


@hookimpl
def fedbench_register_adapters(register):
    register("lora", lora)
