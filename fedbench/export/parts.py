"""A global model in timm's names: the frozen backbone as far as it is used, the low-rank adapters, the classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from fedbench.errors import UserError
from fedbench.models.adapter import LowRank
from fedbench.models.globalmodel import GlobalModel

HEAD = "head"


@dataclass(frozen=True)
class Parts:
    """What an export is written from.

    model: the global model · layers: the backbone's layers up to the deepest classifier, which are blocks 0, 1,
    ... here · frozen: the parameters and buffers without adapters and classifier · adapters: by the name of the
    layer each stands on · image_size: pixels a side.
    """

    model: GlobalModel
    layers: Sequence[int]
    frozen: Mapping[str, Tensor]
    adapters: Mapping[str, LowRank]
    image_size: int

    @property
    def whole(self) -> bool:
        """Whether all of the backbone's layers are used."""
        return list(self.layers) == list(range(self.model.blocks.num_layers))

    @property
    def num_classes(self) -> int:
        return self.classifier.out_features

    @property
    def classifier(self) -> nn.Linear:
        """The deepest one, which becomes the plain model's head."""
        return cast(nn.Linear, self.model.blocks.classifiers[self.model.last.classifier])

    def head(self) -> dict[str, Tensor]:
        """The deepest classifier's `head.weight` (C, D) and `head.bias` (C,)."""
        return {f"{HEAD}.{name}": plain(p) for name, p in self.classifier.named_parameters()}

    def exits(self) -> dict[str, Tensor]:
        """All classifiers under their own names: `exit3.weight`, ..."""
        classifiers = self.model.blocks.classifiers
        return {
            f"{exit.classifier}.{name}": plain(p)
            for exit in self.model.exits
            for name, p in classifiers[exit.classifier].named_parameters()
        }

    def logits(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C): the deepest classifier's."""
        return self.classifier(self.model.features(x))


def parts_of(model: GlobalModel, image_size: int) -> Parts:
    """Take a global model apart. Raises UserError where it has adapters that are not low-rank."""
    root, layers = model.blocks.model, list(model.layers[: model.last.depth])
    new = {f"blocks.{old}": f"blocks.{i}" for i, old in enumerate(layers)}

    def named(name: str) -> str:
        """The name in the model of these layers alone, empty for what is in others."""
        if not name.startswith("blocks."):
            return name
        block = ".".join(name.split(".")[:2])
        return new[block] + name.removeprefix(block) if block in new else ""

    low_rank = {name: module.low_rank() for name, module in root.named_modules() if hasattr(module, "low_rank")}
    inside = tuple(f"{name}." for name in low_rank)
    trained = [name for name, p in root.named_parameters() if p.requires_grad and named(name)]
    if odd := [name for name in trained if not name.startswith(inside)]:
        raise UserError(
            f"{odd[0]} is trained, and is no part of a low-rank adapter: only models with LoRA, or without adapters, "
            "can be exported. An adapter of your own can be, if its modules have `low_rank()` (docs/plugins.md)."
        )
    frozen = {named(name): tensor for name, tensor in root.state_dict().items() if not name.startswith(inside)}
    for name, adapter in low_rank.items():
        own = {"weight": adapter.weight, "bias": adapter.bias}
        frozen |= {named(f"{name}.{key}"): value for key, value in own.items() if value is not None}
    return Parts(
        model,
        layers,
        {name: plain(tensor) for name, tensor in frozen.items() if name},
        {named(name): adapter for name, adapter in low_rank.items() if named(name)},
        image_size,
    )


def adapters_of(parts: Parts, form: str) -> tuple[list[str], LowRank]:
    """The names of all adapters, and one that speaks for the rank, alpha and dropout of all. Raises UserError
    where there are none, where they are unequal, or where they are not all that has been learnt."""
    if parts.model.blocks.bases:
        raise UserError(
            f"--format {form}: the server has added to the frozen weights under the adapters, which adapters alone do "
            "not hold; --format merged writes the whole model"
        )
    if not parts.adapters:
        raise UserError(f"--format {form}: this model has a trained classifier and no adapters; try --format merged")
    one, *others = parts.adapters.values()
    if any((other.rank, other.alpha, other.dropout) != (one.rank, one.alpha, one.dropout) for other in others):
        raise UserError(f"--format {form}: the adapters have unequal ranks or scales; try --format merged")
    return list(parts.adapters), one


def plain(tensor: Tensor) -> Tensor:
    """A tensor of its own on the CPU, as safetensors wants it."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
