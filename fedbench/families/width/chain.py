"""The channels of a convolutional model, followed from the image to the features along its forward pass."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from fedbench.errors import NotApplicable
from fedbench.families.width.units import Axis, Units

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


def chain_of(model: nn.Module) -> tuple[dict[str, Units], Axes, str]:
    """(units, axes, the units of the features) of a model of convolutions, group norms, linear layers and sums.

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
    return chain.finish(next(node for node in graph.nodes if node.op == "output").args[0])


class Tracer(fx.Tracer):
    """Steps into everything but torch's own modules and what is derived from those with weights."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Conv2d | nn.Linear | nn.GroupNorm) or super().is_leaf_module(m, module_qualified_name)


class Chain:
    """The units of every value on the way, and the axes of the parameters met; units that turn out to be the same are
    tied, see `_same`."""

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

    def finish(self, output: Any) -> tuple[dict[str, Units], Axes, str]:
        """Units, axes, and the units of the features, which must be one number for each channel."""
        given = self.of.get(output, IMAGE) if isinstance(output, fx.Node) else IMAGE
        features = getattr(self.model, "num_features", None)
        if given == IMAGE or self.sizes[self._root(given)] != features:
            raise cannot(self.model, f"its {features} features are not one for each channel")
        units = {name: Units(size) for name, size in self.sizes.items() if name not in self.tied}
        axes: Axes = {
            name: tuple(None if units is None else Axis(self._root(units)) for units in given)
            for name, given in self.axes.items()
        }
        return units, axes, self._root(given)
