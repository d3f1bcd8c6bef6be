"""A whole model at the widths that a method offers: the same modules around smaller tensors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbench.errors import UserError
from fedbench.families.wholemodel import WholeModel
from fedbench.families.width.maps import map_of
from fedbench.families.width.units import Rule, Slice, first
from fedbench.models.backbone import HEAD, copy_of, load
from fedbench.options import Length, Share


class HeldGroupNorm(nn.Module):
    """A group norm of which some channels are held.

    Every group of the whole model is normalised over those of its channels that are there.
    Groups that are held as a whole compute what they compute in the whole model.

    Attributes:
        norm: the whole model's, which may have timm's `drop` and `act` behind it.
        held: (k,) the channels' numbers, ascending.
    """

    def __init__(self, norm: nn.GroupNorm, held: Tensor) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.drop: nn.Module = getattr(norm, "drop", nn.Identity())
        self.act: nn.Module = getattr(norm, "act", nn.Identity())
        group_of = (held // (norm.num_channels // norm.num_groups)).tolist()
        sizes = [len(list(same)) for _, same in itertools.groupby(group_of)]
        self.stretches = [(size, len(list(same))) for size, same in itertools.groupby(sizes)]  # (channels, groups)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised channels, (B, k, H, W) as they came."""
        lengths = [size * groups for size, groups in self.stretches]
        parts = (x.split(lengths, 1), self.weight.split(lengths), self.bias.split(lengths), self.stretches)
        normed = [
            F.group_norm(part, groups, weight, bias, self.eps)
            for part, weight, bias, (_, groups) in zip(*parts, strict=True)
        ]
        out: Tensor = self.act(self.drop(normed[0] if len(normed) == 1 else torch.cat(normed, 1)))
        return out


def narrow(model: WholeModel, held: Slice, scale: float = 1.0) -> WholeModel:
    """The model around the tensors of a slice, which it is to be called with; its own are but shapes.

    Group norms: see `HeldGroupNorm`. Layer norms take mean and variance of the dimensions held. Attention divides by
    the square root of the dimensions held of each head, as HeteroFL's code does. scale: what every hidden layer's
    outputs are divided by.
    """
    names = {id(p): name for name, p in model.weights().items()}
    twin = copy_of(model, {id(p): p for p in model.parameters()})  # its weights are not copied
    stretches = []
    for path, module in list(twin.named_modules()):
        if isinstance(module, nn.GroupNorm):
            (channels,) = held.index(names[id(module.weight)])
            parent, _, attribute = path.rpartition(".")
            assert channels is not None, "a group norm's weights follow channels"
            module = HeldGroupNorm(module, channels)
            setattr(twin.get_submodule(parent), attribute, module)
            stretches.append((path, tuple(module.stretches)))
        for attribute, parameter in list(module.named_parameters(recurse=False)):
            shape = held.shape(names[id(parameter)], parameter.shape)
            small = torch.empty(shape, dtype=parameter.dtype, device="meta")
            setattr(module, attribute, nn.Parameter(small, requires_grad=parameter.requires_grad))
    for module in twin.modules():
        _resize(module)
    if scale != 1:
        _divide(twin, scale)
    twin.cut = (model.cut, scale, tuple(stretches))
    return twin


def narrowed(model: WholeModel, width: float) -> WholeModel:
    """The model of the first units of every kind alone, at that width: a smaller model of its own.

    Raises UserError, NotApplicable.
    """
    if not 0 < width <= 1:
        raise UserError(f"width is above 0 and at most 1, not {width!r}")
    held = map_of(model).slice(width)
    twin, weights = narrow(model, held), {name: p.detach() for name, p in model.weights().items()}
    if not next(model.parameters()).is_meta:
        twin = twin.to_empty(device=next(model.parameters()).device)
        load(twin.weights(), held.of(weights))
    body: Any = twin.body
    body.num_features = body.model.num_features = twin.weights()[f"{HEAD}.weight"].shape[1]
    return twin


def _resize(module: Any) -> None:
    """Let what a module knows of its size be that of its tensors."""
    if isinstance(module, nn.LayerNorm):
        module.normalized_shape = tuple(module.weight.shape)
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.Conv2d):
        module.out_channels, module.in_channels = module.weight.shape[:2]
    elif hasattr(module, "attn_dim"):  # timm's Attention
        module.attn_dim = module.qkv.weight.shape[0] // 3
        module.head_dim = module.attn_dim // module.num_heads
        module.scale = module.head_dim**-0.5


def _divide(twin: WholeModel, by: float) -> None:
    """HeteroFL's Scaler: outputs of hidden layers, embeddings among them, divided by the rate."""
    body: Any = twin.body.model
    embeds = hasattr(body, "norm_pre")  # a ViT: tokens, class token and positions are divided together
    if embeds:
        body.norm_pre.register_forward_pre_hook(lambda module, given: (given[0] / by,))
    for path, module in body.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and not (embeds and path.startswith("patch_embed.")):
            module.register_forward_hook(lambda module, given, out: out / by)


# The widths that a method offers.
Rates = Annotated[Sequence[Share], Length(1)]
RATES = (1, 0.5, 0.25, 0.125, 0.0625)  # of HeteroFL's levels a to e
KEPT = 32  # models of other sizes, which are but shapes


@dataclass(frozen=True)
class NarrowModel:
    """A model of one width: its rate g, the slice of the whole model's tensors, and what is called with them."""

    rate: float
    slice: Slice
    model: WholeModel


class Cuts:
    """The parts of a whole model.

    Attributes:
        rule: which units a slice of rate g holds in round t.
        scaled: whether parts divide the outputs of hidden layers by g, as HeteroFL does while training.

    Raises:
        NotApplicable: for a model whose units are not known.
    """

    def __init__(self, model: WholeModel, rule: Rule = first, scaled: bool = False) -> None:
        self.model, self.rule, self.scaled = model, rule, scaled
        self.map = map_of(model)
        self.at = functools.lru_cache(maxsize=KEPT)(self._at)

    def _at(self, g: float, t: int = 0) -> NarrowModel:
        """`at(g, t)`: the part of rate g in round t."""
        held = self.map.slice(g, self.rule, t)
        return NarrowModel(g, held, narrow(self.model, held, g if self.scaled else 1.0))


def offered(method: str, option: str, rates: Sequence[float]) -> tuple[float, ...]:
    """The rates of an option, the largest first. Raises UserError."""
    if not isinstance(rates, list | tuple) or not rates:
        raise UserError(f"{method}: {option} is a list of numbers above 0 and at most 1, not {rates!r}")
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
            raise UserError(f"{method}: {option} are above 0 and at most 1, not {rate!r}")
    return tuple(sorted({float(rate) for rate in rates}, reverse=True))
