"""Which hidden units a model has: by the names of timm's models, else along the way from the image to the features."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from fedbench.errors import NotApplicable
from fedbench.families.wholemodel import WholeModel
from fedbench.families.width.units import Axis, Units, WidthMap
from fedbench.models.backbone import Blocks

Axes = dict[str, tuple[Axis | None, ...]]

IMAGE = "image"  # what the input's channels are, which stay whole

# What leaves every channel to itself. Pooling may flatten what is left of the picture, see `Chain.finish`.
_ALONE: tuple[type[nn.Module], ...] = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Sigmoid, nn.Tanh),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Identity),
    *(nn.Dropout, nn.Dropout2d),
)
_ALONE_CALLED: tuple[Callable[..., Any], ...] = (
    *(F.relu, F.gelu, F.silu, F.dropout, F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, torch.relu, torch.tanh),
    torch.flatten,
)
_ALONE_METHODS = ("relu", "tanh", "sigmoid", "mean", "flatten", "contiguous")
_SUMS: tuple[Callable[..., Any], ...] = (operator.add, operator.iadd, torch.add)


def cannot(model: nn.Module, why: str) -> NotApplicable:
    """The error that a model cannot be cut to a width."""
    return NotApplicable(f"{type(model).__name__} cannot be cut to a width: {why}")


def chain_of(model: nn.Module, features: int) -> tuple[dict[str, Units], Axes, str]:
    """(units, axes, the units of its D features) of a model of convolutions, group norms, linear layers and sums.

    What is added up has the same channels: a residual sum ties its branches. Raises NotApplicable.
    """
    try:
        graph = Tracer().trace(model)
    except Exception as error:  # whatever a forward pass does with what is no tensor
        raise cannot(model, f"its way from the image to the features cannot be followed ({error})") from error
    chain = Chain(model)
    for node in graph.nodes:
        if node.op != "output":
            chain.enter(node)
    return chain.finish(next(node for node in graph.nodes if node.op == "output").args[0], features)


class Tracer(fx.Tracer):
    """Steps into everything but torch's own modules and what is derived from those with weights."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation."""
        return isinstance(m, nn.Conv2d | nn.Linear | nn.GroupNorm) or super().is_leaf_module(m, module_qualified_name)


class Chain:
    """The units of every value on the way, and the axes of the parameters met.

    Units that turn out to be the same are tied, see `_same`.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.of: dict[fx.Node, str] = {}
        self.sizes: dict[str, int] = {}
        self.tied: dict[str, str] = {}
        self.axes: dict[str, tuple[str | None, ...]] = {}

    def enter(self, node: fx.Node) -> None:
        """Follow one step of the forward pass. Raises NotApplicable for one that is not known."""
        if node.op == "placeholder":
            self.of[node] = IMAGE
        elif node.op == "call_module":
            self.of[node] = self._module(str(node.target), self.model.get_submodule(str(node.target)), node)
        elif node.op == "call_function" and node.target in _SUMS:
            self.of[node] = self._sum(node)
        elif (node.op == "call_function" and node.target in _ALONE_CALLED) or (
            node.op == "call_method" and node.target in _ALONE_METHODS
        ):
            self.of[node] = self._read(node)
        else:
            raise self._stranger(node)

    def _read(self, node: fx.Node) -> str:
        given = node.args[0]
        if not isinstance(given, fx.Node):
            raise self._stranger(node)
        return self.of[given]

    def _stranger(self, node: fx.Node) -> NotApplicable:
        what = getattr(node.target, "__name__", node.target)
        return cannot(self.model, f"what `{what}` does to its channels is not known")

    def _module(self, path: str, module: nn.Module, node: fx.Node) -> str:
        given = self._read(node)
        if isinstance(module, nn.GroupNorm):
            self._group_norm(path, module, given)
            return given
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1):
            weight = module.weight
            if given != IMAGE and weight.shape[1] != self.sizes[self._root(given)]:
                raise cannot(self.model, f"`{path}` reads several places of one channel")
            made = self._made(path, weight.shape[0])
            self._axes(f"{path}.weight", (made, None if given == IMAGE else given, *[None] * (weight.dim() - 2)))
            if module.bias is not None:
                self._axes(f"{path}.bias", (made,))
            return made
        if isinstance(module, _ALONE):
            return given
        raise cannot(self.model, f"what `{path}` ({type(module).__name__}) does to its channels is not known")

    def _group_norm(self, path: str, module: nn.GroupNorm, given: str) -> None:
        if not module.affine or given == IMAGE:
            raise cannot(self.model, f"the channels of its group norm `{path}` are not known")
        for part in ("weight", "bias"):
            self._axes(f"{path}.{part}", (given,))

    def _made(self, path: str, size: int) -> str:
        self.sizes.setdefault(path, size)
        return path

    def _axes(self, name: str, axes: tuple[str | None, ...]) -> None:
        """What a parameter's axes follow, tied to what they followed when it was met before."""
        for before, now in zip(self.axes.get(name, axes), axes, strict=True):
            if before != now:
                self._same(before, now)
        self.axes[name] = axes

    def _sum(self, node: fx.Node) -> str:
        values = [self.of[value] for value in node.args if isinstance(value, fx.Node)]
        for value in values[1:]:
            self._same(values[0], value)
        return values[0]

    def _same(self, one: str | None, other: str | None) -> None:
        if one is None or other is None or IMAGE in (one, other):
            if one != other:
                raise cannot(self.model, "it adds its channels to those of the image")
            return
        one, other = self._root(one), self._root(other)
        if self.sizes[one] != self.sizes[other]:
            raise cannot(self.model, f"it adds {self.sizes[one]} channels to {self.sizes[other]}")
        if one != other:
            self.tied[other] = one

    def _root(self, units: str) -> str:
        while units in self.tied:
            units = self.tied[units]
        return units

    def finish(self, output: Any, features: int) -> tuple[dict[str, Units], Axes, str]:
        """Units, axes, and the units of the features, which must be one number for each channel."""
        given = self.of.get(output, IMAGE) if isinstance(output, fx.Node) else IMAGE
        if given == IMAGE or self.sizes[self._root(given)] != features:
            raise cannot(self.model, f"its {features} features are not one for each channel")
        units = {name: Units(size) for name, size in self.sizes.items() if name not in self.tied}
        axes: Axes = {
            name: tuple(None if units is None else Axis(self._root(units)) for units in given)
            for name, given in self.axes.items()
        }
        return units, axes, self._root(given)


D, A, QKV, H = "embedding", "attn", "attn*3", "mlp"  # what axes follow; all but D belong to one layer
Named = dict[str, tuple[str | None, ...]]

# Every parameter of such a model by its name: an expression, and what its axes follow.
_MLP: Named = {
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc1\.weight": (H, D),
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc1\.bias": (H,),
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc2\.weight": (D, H),
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc2\.bias": (D,),
    r"(blocks\.\d+\.)?(norm\d?|norm_pre|fc_norm)\.(weight|bias)": (D,),
    r"blocks\.\d+\.ls[12]\.gamma": (D,),
    r"(patch_embed|stem)\.proj\.weight": (D, None, None, None),
    r"(patch_embed|stem)\.(proj\.bias|norm\.(weight|bias))": (D,),
}
NAMES: dict[str, Named] = {
    "VisionTransformer": {
        **_MLP,
        r"(cls_token|reg_token|pos_embed)": (None, None, D),
        r"blocks\.\d+\.attn\.qkv\.weight": (QKV, D),
        r"blocks\.\d+\.attn\.qkv\.bias": (QKV,),
        r"blocks\.\d+\.attn\.proj\.weight": (D, A),
        r"blocks\.\d+\.attn\.proj\.bias": (D,),
    },
    "MlpMixer": {
        **_MLP,
        r"blocks\.\d+\.mlp_tokens\.fc1\.weight": ("mlp_tokens", None),
        r"blocks\.\d+\.mlp_tokens\.fc1\.bias": ("mlp_tokens",),
        r"blocks\.\d+\.mlp_tokens\.fc2\.weight": (None, "mlp_tokens"),
        r"blocks\.\d+\.mlp_tokens\.fc2\.bias": (None,),
    },
}


def map_of(model: WholeModel) -> WidthMap:
    """The hidden units of a body and its classifiers; pixels, tokens and classes are none.

    A VisionTransformer's are its embedding dimension, in every layer the dimensions of each head, the same of q, k and
    v, and the MLP's hidden units; an MlpMixer's its channels and its MLPs' hidden units; another model's its channels,
    see `chain_of`. Raises NotApplicable with what stands in the way.
    """
    body = model.body
    kinds = [kind.__name__ for kind in type(body.model).__mro__ if kind.__name__ in NAMES]
    if isinstance(body, Blocks):
        if not kinds:
            raise cannot(body.model, f"its layers are known of {' and '.join(NAMES)} alone")
        units, axes = _by_names(body, NAMES[kinds[0]])
        features = D
    else:
        units, axes, features = chain_of(body.model, body.num_features)
    _check_all(body.model, axes)
    named = {f"model.{name}": value for name, value in axes.items()}
    for name in body.classifiers:
        named |= {f"{name}.weight": (None, Axis(features)), f"{name}.bias": (None,)}
    return WidthMap(units, named)


def _check_all(model: nn.Module, axes: Iterable[str]) -> None:
    known = set(axes)
    for name, _ in model.named_parameters():
        if name not in known:
            raise cannot(model, f"nothing says which units its parameter {name} follows")


def _by_names(body: Blocks, named: Named) -> tuple[dict[str, Units], dict[str, tuple[Axis | None, ...]]]:
    """Units and axes of a model whose parameters have timm's names; the head is not one of them."""
    units = {D: Units(body.num_features)}
    block: Any
    for j, block in enumerate(body.blocks):
        for part in ("mlp", "mlp_channels", "mlp_tokens"):
            if hasattr(block, part):
                units[f"{j}.{H if part == 'mlp_channels' else part}"] = Units(getattr(block, part).fc1.out_features)
        if hasattr(block, "attn"):
            units[f"{j}.{A}"] = Units(*_heads(body.model, block.attn))
    axes = {}
    for name, parameter in body.model.named_parameters():
        follows = next((axes for pattern, axes in named.items() if re.fullmatch(pattern, name)), None)
        if follows is None or len(follows) != parameter.dim():
            raise cannot(body.model, f"nothing says which units its parameter {name} follows")
        axes[name] = tuple(_axis(name, units_of) for units_of in follows)
    return units, axes


def _heads(model: nn.Module, attention: Any) -> tuple[int, int]:
    """(d_head, heads) of timm's Attention."""
    if type(attention).__name__ != "Attention" or not hasattr(attention, "attn_dim"):
        raise cannot(model, f"the heads of its {type(attention).__name__} are not known")
    return attention.head_dim, attention.num_heads


def _axis(name: str, units: str | None) -> Axis | None:
    if units is None or units == D:
        return None if units is None else Axis(D)
    layer = name.split(".")[1]
    kind, _, times = units.partition("*")
    return Axis(f"{layer}.{kind}", int(times or 1))
