"""What of a model its price depends on, looked at once for all prices: walking through hundreds of modules takes longer
than adding up what is found there."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from functools import cached_property

from torch import Tensor, nn

from fedbench.models.adapter import SeededDropout
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import pairs
from fedbench.models.once import Parameters, parameters_of


class Shape:
    """A model with its adapters and classifiers, which nobody changes any more: which parameters it has, of which
    shapes, and which of them are trained. Their values make no difference."""

    def __init__(self, model: Blocks) -> None:
        self.model = model
        self.r = functools.cache(model.r)  # see `Blocks`

    def frozen_bytes(self, layers: int) -> int:
        """See `Blocks.frozen_bytes`."""
        outside, one = self._frozen
        return outside + layers * (one - outside)

    @cached_property
    def _frozen(self) -> tuple[int, int]:
        """Of no layer, and of one."""
        return self.model.frozen_bytes(0), self.model.frozen_bytes(1)

    @cached_property
    def shared(self) -> dict[str, nn.Parameter]:
        """See `Blocks.shared`."""
        return self.model.shared()

    @cached_property
    def parameters(self) -> Parameters:
        """See `once.parameters_of`."""
        return parameters_of(self.model)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """The rank of every low-rank adapter, at the places of both its factors."""
        return {place: pair.rank for pair in pairs(self.model) for place in (pair.A, pair.B)}

    @cached_property
    def dropouts(self) -> tuple[float, ...]:
        """The rates of adapters' dropouts, of which parameters do not tell."""
        return tuple(filter(None, map(_dropout, self.model.modules())))

    @cached_property
    def alike(self) -> bool:
        """Whether every block has the same modules, down to the rates of dropout, and the same parameters, trainable in
        the same places."""

        def look(block: nn.Module) -> list[Hashable]:
            modules: list[Hashable] = [(name, type(part), _dropout(part)) for name, part in block.named_modules()]
            return modules + [(name, p.shape, p.requires_grad) for name, p in block.named_parameters()]

        first, *others = self.model.blocks
        expected = look(first)
        return all(look(block) == expected for block in others)

    def held(self, layer: int) -> list[tuple[str, Tensor]]:
        """What is trained in a layer, by its place."""
        return [(f"r/{layer}/{name}", p) for name, p in self.r(layer).items()]


def _dropout(module: nn.Module) -> float:
    return module.p if isinstance(module, SeededDropout) else 0.0
