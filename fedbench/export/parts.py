"""A global model in the plain model's names: the frozen backbone so far as used, low-rank adapters, classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedbench.errors import UserError
from fedbench.export.texts import TextBackbone
from fedbench.models.adapter import LowRank
from fedbench.models.globalmodel import GlobalModel

HEAD = "head"
CLOSE = 1e-3  # of the largest logit: what float32 may lose where sums are taken in another order


@dataclass(frozen=True)
class Parts:
    """What an export is written from.

    Attributes:
        model: the global model.
        layers: the backbone's layers up to the deepest classifier, which are blocks 0, 1, ... here.
        frozen: the parameters and buffers without adapters and classifier.
        adapters: by the name of the layer each stands on.
        image_size: pixels a side, or tokens.
        heads: the names of the plain model's classifiers. A distilled model answers by the mean of two, each on a token
            of its own: the cell's one reads the mean of the tokens, so that both are equal to it.
        texts: of a model of texts, its backbone.
    """

    model: GlobalModel
    layers: Sequence[int]
    frozen: Mapping[str, Tensor]
    adapters: Mapping[str, LowRank]
    image_size: int
    heads: Sequence[str] = (HEAD,)
    texts: TextBackbone | None = None

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
        """The deepest classifier's `head.weight` (C, D) and `head.bias` (C,), under every name of `heads`."""
        return {f"{head}.{name}": plain(p) for head in self.heads for name, p in self.classifier.named_parameters()}

    def exits(self) -> dict[str, Tensor]:
        """All classifiers under their own names: `exit3.weight`, ..."""
        classifiers = self.model.blocks.classifiers
        return {
            f"{exit.classifier}.{name}": plain(p)
            for exit in self.model.exits
            for name, p in classifiers[exit.classifier].named_parameters()
        }

    def logits(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W), or ids (B, T) -> (B, C): the deepest classifier's."""
        return self.classifier(self.model.features(x))


def parts_of(model: GlobalModel, image_size: int, texts: TextBackbone | None = None) -> Parts:
    """Take a global model apart. Raises UserError where a plain model has no place for what is trained."""
    root, layers = model.blocks.model, list(model.layers[: model.last.depth])
    names = texts.names if texts else {}
    inside_blocks = names.get("blocks", "blocks")
    new = {f"blocks.{old}": f"{inside_blocks}.{i}" for i, old in enumerate(layers)}

    def named(name: str) -> str:
        """The name in the plain model of these layers alone, empty for what is in others."""
        if not name.startswith("blocks."):
            first, dot, rest = name.partition(".")
            return names.get(first, first) + dot + rest
        block = ".".join(name.split(".")[:2])
        return new[block] + name.removeprefix(block) if block in new else ""

    low_rank = {name: module.low_rank() for name, module in root.named_modules() if hasattr(module, "low_rank")}
    states = {name: module.plain_state() for name, module in root.named_modules() if hasattr(module, "plain_state")}
    states |= {name: {"weight": one.weight, "bias": one.bias} for name, one in low_rank.items()}
    inside = tuple(f"{name}." for name in states)
    trained = [name for name, p in root.named_parameters() if p.requires_grad and named(name)]
    if odd := [name for name in trained if not name.startswith(inside)]:
        raise UserError(
            f"{odd[0]} is trained, and a plain model has no place for it: models with the adapters lora, bitfit and "
            "full, or without any, can be exported. One of your own can be, if its modules have `low_rank()` or "
            "`plain_state()` (docs/hooks/adapters.md)."
        )
    frozen = {named(name): tensor for name, tensor in root.state_dict().items() if not name.startswith(inside)}
    for name, own in states.items():
        frozen |= {named(f"{name}.{key}"): value for key, value in own.items() if value is not None}
    return Parts(
        model,
        layers,
        {name: plain(tensor) for name, tensor in frozen.items() if name},
        {named(name): adapter for name, adapter in low_rank.items() if named(name)},
        image_size,
        _heads(root),
        texts,
    )


def _heads(root: nn.Module) -> tuple[str, ...]:
    """Where a timm model has its classifiers."""
    ask: Any = getattr(root, "get_classifier", tuple)
    found = ask()
    own = found if isinstance(found, tuple) else (found,)
    return tuple(name for name, module in root.named_modules() if any(module is one for one in own)) or (HEAD,)


def adapters_of(parts: Parts, form: str) -> tuple[list[str], LowRank]:
    """The names of all adapters, and one that speaks for the rank, alpha and dropout of all. Raises UserError
    where there are none, where they are unequal, or where they are not all that has been learnt."""
    if parts.model.blocks.bases:
        raise UserError(
            f"--format {form}: the server has added to the frozen weights under the adapters, which adapters alone do "
            "not hold; --format merged writes the whole model"
        )
    if not parts.adapters:
        raise UserError(f"--format {form}: this model has no low-rank adapters; try --format merged")
    one, *others = parts.adapters.values()
    if any((other.rank, other.alpha, other.dropout) != (one.rank, one.alpha, one.dropout) for other in others):
        raise UserError(f"--format {form}: the adapters have unequal ranks or scales; try --format merged")
    return list(parts.adapters), one


@torch.no_grad()
def agrees(model: nn.Module, parts: Parts) -> bool:
    """Whether a plain model gives the logits of the cell's, to float32's rounding."""
    if parts.texts:
        x = parts.texts.sample
        found = parts.texts.answer(model, x)
    else:
        size = (2, 3, parts.image_size, parts.image_size)
        x = torch.randn(size, generator=torch.Generator().manual_seed(0))
        found = model(x)
    wanted = parts.logits(x)
    return found.shape == wanted.shape and bool((found - wanted).abs().max() <= CLOSE * wanted.abs().max())


def check_adapters(form: str, model: nn.Module, parts: Parts, tensors: Mapping[str, Tensor], alpha: float) -> None:
    """Put what was written of adapters and classifiers onto a plain model with the frozen weights, which must then
    answer as the cell's does. tensors: `NAME.lora_A`, `NAME.lora_B`, and those of classifiers, as read from the file.

    Raises UserError where the model has no such parts, or answers otherwise.
    """
    state = {name: tensor for name, tensor in tensors.items() if ".lora_" not in name}
    for name, adapter in parts.adapters.items():
        A, B, W = tensors[f"{name}.lora_A"], tensors[f"{name}.lora_B"], model.get_parameter(f"{name}.weight")
        state[f"{name}.weight"] = replace(adapter, weight=W, A=A, B=B, alpha=alpha).merged()
    if unknown := model.load_state_dict(state, strict=False).unexpected_keys:
        raise UserError(f"--format {form}: the backbone as its library makes it has no {', '.join(unknown)}")
    if not agrees(model, parts):
        raise UserError(
            f"--format {form}: loaded back, these files answer otherwise than the cell's model: "
            f"{type(model).__name__} does not answer by one linear classifier on its pooled features"
        )


def plain(tensor: Tensor) -> Tensor:
    """A tensor of its own on the CPU, as safetensors wants it."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
