"""BitFit: nothing but the layers' bias terms is trained (Ben Zaken, Goldberg and Ravfogel, ACL 2022)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.models.adapter import Module, Stack, resolve_targets
from fedbench.models.backbone import Blocks
from fedbench.models.kernels import frozen_linear
from fedbench.options import Text, judged


class BitFit(nn.Module, ABC):
    """A module whose bias (out,) is trained, from the pre-trained values on, next to its frozen weight.

    It takes the module's place, so that the frozen bias is no part of the model any more, and nobody is sent it twice.
    """

    def __init__(self, frozen: nn.Linear | nn.LayerNorm) -> None:
        super().__init__()
        self.weight = frozen.weight
        self.bitfit_bias = nn.Parameter(frozen.bias.detach().clone())
        self.pretrained: Tensor
        self.register_buffer("pretrained", frozen.bias.detach().clone(), persistent=False)
        self.stack: Stack | None = None

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> None:
        """The pre-trained bias, whatever the generator."""
        self.bitfit_bias.copy_(self.pretrained)

    def plain_state(self) -> dict[str, Tensor]:
        """The tensors of the module in whose place it stands."""
        return {"weight": self.weight, "bias": self.bitfit_bias}

    def forward(self, x: Tensor) -> Tensor:
        if self.stack is None:
            return self.computed(x, self.bitfit_bias)
        y = self.computed(x, None)
        return y + self.stack.for_rows("bitfit_bias", y)

    @abstractmethod
    def computed(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """What the frozen module made of x, with that bias."""


class BitFitLinear(BitFit):
    """y = W x + b. x (..., in) -> (..., out)"""

    def computed(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, self.weight, bias) if bias is not None else frozen_linear(x, self.weight)


class BitFitNorm(BitFit):
    """y = w * (x - mean) / std + b over the last axis. x (..., D) -> (..., D)"""

    def __init__(self, frozen: nn.LayerNorm) -> None:
        super().__init__(frozen)
        self.shape, self.eps = frozen.normalized_shape, frozen.eps

    def computed(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, bias, self.eps)


@judged("bitfit")
def bitfit(
    targets: Annotated[str, Text("all, or the name of a module")] | list[Module] = "all",
) -> Callable[[Blocks], None]:
    """The layers' bias terms, trained from their pre-trained values on (BitFit, ACL 2022).

    targets: `all` (those of every linear layer and layer norm in the layers, as the paper), or a list of module names
    within a layer: the paper's smaller choice is the queries' and the MLP's first layer's; of timm's ViT that is
    [attn.qkv, mlp.fc1], where keys and values have no bias of their own to leave out.
    """

    def attach(blocks: Blocks) -> None:
        places = _all(blocks) if targets == "all" else resolve_targets(blocks, targets)
        inside = set(map(id, blocks.blocks.modules()))
        for parent, attribute in places:
            frozen = getattr(parent, attribute)
            if id(parent) not in inside:
                raise UserError(f"bitfit: {attribute!r} stands in no layer; BitFit trains the biases of the layers")
            kind = _kind(frozen)
            if kind is None:
                raise UserError(
                    f"bitfit: {attribute!r}, a {type(frozen).__name__}, is no Linear or LayerNorm with a bias to train"
                )
            setattr(parent, attribute, kind(frozen))

    return attach


def _all(blocks: Blocks) -> list[tuple[nn.Module, str]]:
    """Where in the layers a bias can be trained. Raises UserError where there is none."""
    found = [(parent, name) for parent in blocks.blocks.modules() for name, m in parent.named_children() if _kind(m)]
    if not found:
        raise UserError(f"bitfit: the layers of this {type(blocks.model).__name__} have no bias that can be trained")
    return found


def _kind(module: nn.Module) -> type[BitFit] | None:
    """What takes the place of a module, None where it has no bias or is of an unknown kind."""
    if getattr(module, "bias", None) is None:
        return None
    if type(module) is nn.Linear:
        return BitFitLinear
    named = type(module).__name__ == "LayerNorm"  # torch's, and timm's, which computes the same
    return BitFitNorm if isinstance(module, nn.LayerNorm) and named else None


@hookimpl
def fedbench_register_adapters(register):
    register("bitfit", bitfit)
