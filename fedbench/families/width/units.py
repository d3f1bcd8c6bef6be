"""Which hidden units the axes of a model's tensors follow, and slices of the tensors by lists of units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]

# (K, g, t) -> (k,) int64 on the CPU: which of K units a slice of rate g holds in round t.
Rule = Callable[[int, float, int], Tensor]


def count(K: int, g: float) -> int:
    """ceil(K g): how many of K units a slice of rate g holds.

    K g is rounded to nine places before, since 10 * 0.7 is a little above 7 in floating point.
    """
    return math.ceil(round(K * g, 9))


def first(K: int, g: float, t: int) -> Tensor:
    """The first ceil(K g) units, in every round."""
    return torch.arange(count(K, g), device="cpu")  # also where the model is but a shape


@dataclass(frozen=True)
class Units:
    """Hidden units that are held or not wherever they occur: `runs` runs of `each`, each of which is cut the same way.

    The heads of an attention are runs of d_head units; channels are one run.
    """

    each: int
    runs: int = 1

    @property
    def total(self) -> int:
        """How many units there are."""
        return self.each * self.runs

    def held(self, rule: Rule, g: float, t: int) -> Tensor:
        """(k,) the numbers of those that a slice holds, ascending."""
        begins = self.each * torch.arange(self.runs, device="cpu")
        return (begins[:, None] + rule(self.each, g, t).sort().values).flatten()


@dataclass(frozen=True)
class Axis:
    """An axis of a tensor that follows hidden units, `times` times one after another: q, k and v follow the same."""

    units: str
    times: int = 1


@dataclass(frozen=True)
class WidthMap:
    """Which units there are, and which of them every axis of every tensor follows.

    None stands for pixels, tokens and classes, which stay whole.
    """

    units: Mapping[str, Units]
    axes: Mapping[str, tuple[Axis | None, ...]]

    def slice(self, g: float, rule: Rule = first, t: int = 0) -> Slice:
        """What a client of rate g holds in round t."""
        held = {name: units.held(rule, g, t) for name, units in self.units.items()}
        return Slice(self.axes, held, {name: units.total for name, units in self.units.items()})


@dataclass(frozen=True, eq=False)
class Slice:
    """A part of every tensor of a model.

    Attributes:
        axes: as in `WidthMap`.
        held: by name of units, the numbers (k,) of those held, ascending.
        sizes: how many there are.
    """

    axes: Mapping[str, tuple[Axis | None, ...]]
    held: Mapping[str, Tensor]
    sizes: Mapping[str, int]

    def index(self, name: str) -> list[Tensor | None]:
        """For every axis of a tensor the places (k,) that are held; None for all."""
        return [None if axis is None else self._along(axis) for axis in self.axes[name]]

    def _along(self, axis: Axis) -> Tensor:
        held, size = self.held[axis.units], self.sizes[axis.units]
        return torch.cat([held + size * i for i in range(axis.times)])

    def shape(self, name: str, whole: torch.Size) -> list[int]:
        """The shape that is left of a tensor."""
        return [size if index is None else len(index) for size, index in zip(whole, self.index(name), strict=True)]

    def of(self, weights: Tensors) -> dict[str, Tensor]:
        """The part of every tensor, as a new tensor; gradients flow through."""
        return {name: self._part(name, value) for name, value in weights.items()}

    def _part(self, name: str, value: Tensor) -> Tensor:
        for axis, index in enumerate(self.index(name)):
            if index is not None:
                value = value.index_select(axis, index.to(value.device))
        return value

    def put(self, name: str, whole: Tensor, part: Tensor) -> None:
        """Copy a part to where it stands in the whole tensor."""
        with torch.no_grad():
            whole[self.places(name, whole)] = part

    def mask(self, name: str, whole: Tensor) -> Tensor:
        """Bool, in the shape of the whole tensor: which of its coordinates are held."""
        mask = torch.zeros(whole.shape, dtype=torch.bool, device=whole.device)
        mask[self.places(name, whole)] = True
        return mask

    def places(self, name: str, whole: Tensor) -> tuple[Tensor, ...]:
        """What picks the part out of a whole tensor, one index for every axis, which broadcast to the part's shape."""
        lists = [
            torch.arange(size, device=whole.device) if index is None else index.to(whole.device)
            for size, index in zip(whole.shape, self.index(name), strict=True)
        ]
        return tuple(held.view(-1, *[1] * (whole.dim() - 1 - axis)) for axis, held in enumerate(lists))

    def within(self, wider: Slice) -> Slice:
        """The same slice of what a wider one has cut out already. The wider one holds all that this one does."""
        held = {name: torch.searchsorted(wider.held[name], own) for name, own in self.held.items()}
        return Slice(self.axes, held, {name: len(own) for name, own in wider.held.items()})
