"""Full fine-tuning: every weight of the layers is trained, as InclusiveFL and DepthFL do in their own papers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.models.adapter import Stack
from fedbench.models.backbone import Blocks
from fedbench.options import judged


class Trained(nn.Module, ABC):
    """A module whose weight and bias are trained from their pre-trained values on.

    It takes the module's place, so that what was frozen is no part of the model any more, and nobody is sent it twice.
    """

    def __init__(self, frozen: nn.Linear | nn.LayerNorm) -> None:
        super().__init__()
        self.full_weight = nn.Parameter(frozen.weight.detach().clone())
        self.full_bias = None if frozen.bias is None else nn.Parameter(frozen.bias.detach().clone())
        for name, value in list(self.named_parameters()):
            self.register_buffer(f"pretrained_{name}", value.detach().clone(), persistent=False)
        self.stack: Stack | None = None

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> None:
        """The pre-trained values, whatever the generator."""
        for name, value in self.named_parameters():
            value.copy_(self.get_buffer(f"pretrained_{name}"))

    def plain_state(self) -> dict[str, Tensor]:
        """The tensors of the module in whose place it stands."""
        own = {"weight": self.full_weight, "bias": self.full_bias}
        return {name: value for name, value in own.items() if value is not None}

    def forward(self, x: Tensor) -> Tensor:
        stack = self.stack
        if stack is None:
            return self.computed(x, self.full_weight, self.full_bias)
        if stack.even:
            return self.of_clients(x, stack)
        return stack.map(x, lambda part, own: self.computed(part, own["full_weight"], own.get("full_bias")))

    @abstractmethod
    def computed(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What the module makes of x with that weight and bias."""

    @abstractmethod
    def of_clients(self, x: Tensor, stack: Stack) -> Tensor:
        """The same of several clients with as many rows of x each, with the weight and bias of each."""


class TrainedLinear(Trained):
    """y = W x + b. x (..., in) -> (..., out)"""

    def computed(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def of_clients(self, x: Tensor, stack: Stack) -> Tensor:
        weight, bias = stack.values["full_weight"], stack.values.get("full_bias")
        rows = x.reshape(len(weight), -1, x.shape[-1])  # (n, B T, in)
        product = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
        return product.reshape(*x.shape[:-1], -1)


class TrainedNorm(Trained):
    """y = w * (x - mean) / std + b over the last axis. x (..., D) -> (..., D)"""

    def __init__(self, frozen: nn.LayerNorm) -> None:
        super().__init__(frozen)
        self.shape, self.eps = frozen.normalized_shape, frozen.eps

    def computed(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.layer_norm(x, self.shape, weight, bias, self.eps)

    def of_clients(self, x: Tensor, stack: Stack) -> Tensor:
        y = F.layer_norm(x, self.shape, None, None, self.eps) * stack.for_rows("full_weight", x)
        return y if self.full_bias is None else y + stack.for_rows("full_bias", x)


@judged("full")
def full() -> Callable[[Blocks], None]:
    """Every linear layer and layer norm of the layers is trained whole, from its pre-trained values on.

    What stands outside the layers, such as embeddings, stays frozen; the classifier is trained as ever. Other norms,
    such as a Llama's, stay frozen too.
    """

    def attach(blocks: Blocks) -> None:
        found = [
            (parent, name, kind)
            for parent in blocks.blocks.modules()
            for name, module in parent.named_children()
            if (kind := _kind(module))
        ]
        if not found:
            raise UserError(f"full: the layers of this {type(blocks.model).__name__} have no linear layer or norm")
        for parent, name, kind in found:
            setattr(parent, name, kind(getattr(parent, name)))

    return attach


def _kind(module: nn.Module) -> type[Trained] | None:
    """What takes the place of a module, None where it is of another kind."""
    if type(module) is nn.Linear:
        return TrainedLinear
    named = type(module).__name__ == "LayerNorm"  # torch's, and timm's, which computes the same
    return TrainedNorm if isinstance(module, nn.LayerNorm) and named else None


@hookimpl
def fedbench_register_adapters(register):
    register("full", full)
