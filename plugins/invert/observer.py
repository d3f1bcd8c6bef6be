"""What the server of a split-learning method has of one client's step, and the attacks that this allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from fedbench.families.split.cut import Cut
from fedbench.families.split.server import Backward, ZerothOrder

from .attack import Mismatch, from_features, from_gradient, from_span

Learner = Backward | ZerothOrder
ATTACKS = ("match", "span", "cosine")


@dataclass(frozen=True)
class Attack:
    """What is seen (`features` or `gradient`), how it is attacked, and the mismatch: with what was seen, and `blind`,
    with noise of the same norms in its place."""

    seen: str
    how: str
    mismatch: Mismatch
    blind: Mismatch


class Observer:
    """A server that knows w_H, w_E, w_T and the labels; images are in [0, 1].

    mean, std: (1, 3, 1, 1), of the normalisation.
    """

    def __init__(self, cut: Cut, mean: Tensor, std: Tensor) -> None:
        self.cut, self.mean, self.std = cut, mean, std

    def h(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, T, D), the smashed features, which cross at every step."""
        return self.cut.H((x - self.mean) / self.std)

    def loss(self, h: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.cut.T(self.cut.E(h)), y)

    def gradient(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """dL/dw_E, with its graph, in the order of w_E."""
        for w in self.cut.w_E.values():
            w.requires_grad_(True)
        return torch.autograd.grad(self.loss(self.h(x), y), list(self.cut.w_E.values()), create_graph=True)

    def g_s(self, x: Tensor, y: Tensor, learner: Learner, t: int, client: int) -> dict[str, Tensor]:
        """The server's gradient of that batch, as FedV or FedVZ has it."""
        if isinstance(learner, Backward):
            told = dict(zip(self.cut.w_E, (g.detach() for g in self.gradient(x, y)), strict=True))
        else:
            with torch.no_grad():
                told = learner.ask(self.h(x), lambda b: F.cross_entropy(self.cut.T(b), y), t, client)
        learner.take(told, t, client)
        found = {name: torch.zeros_like(w) for name, w in self.cut.w_E.items()}
        learner.step(found, -1.0)
        return found

    @torch.no_grad()
    def noise(self, like: Sequence[Tensor], generator: Generator) -> list[Tensor]:
        drawn = [torch.randn(seen.shape, generator=generator, dtype=seen.dtype) for seen in like]
        return [z * (seen.norm() / z.norm()) for z, seen in zip(drawn, like, strict=True)]

    def attacks(self, x: Tensor, y: Tensor, g_s: Mapping[str, Tensor] | None, generator: Generator) -> Iterator[Attack]:
        """On the images x (B, 3, H, W) with the labels y (B,); g_s: None where the server learns nothing."""
        h = self.h(x).detach()
        yield Attack("features", "match", from_features(self.h, h), from_features(self.h, *self.noise([h], generator)))
        if g_s is None:
            return
        seen = list(g_s.values())
        blind = self.noise(seen, generator)
        if (name := self._first_linear) and h.shape[0] * h.shape[1] < h.shape[2]:
            place = list(g_s).index(name)
            yield Attack(
                "gradient", "span", from_span(self._inputs, seen[place]), from_span(self._inputs, blind[place])
            )

        def gradient(x: Tensor) -> tuple[Tensor, ...]:
            return self.gradient(x, y)

        yield Attack("gradient", "cosine", from_gradient(gradient, seen), from_gradient(gradient, blind))

    @property
    def _first_linear(self) -> str | None:
        """The name of the weight that queries, keys and values are made by in the encoder's first block."""
        name = f"model.blocks.{self.cut.first}.attn.qkv.weight"
        return name if name in self.cut.w_E else None

    def _inputs(self, x: Tensor) -> Tensor:
        """What that weight multiplies: (B, T, D)."""
        return self.cut.model.blocks[self.cut.first].get_submodule("norm1")(self.h(x))
