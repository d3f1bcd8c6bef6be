"""Images rebuilt from what a training step made of them.

An attack is a mismatch, which is 0 where an image explains what was seen, and a descent on it:

    x* = argmin over x in [0, 1] of mismatch(x) + tv TV(x)

by Adam on the sign of the gradient (Geiping et al., "Inverting Gradients", NeurIPS 2020, arXiv 2003.14053, Eq. 4 and
Sec. 5). Images (B, 3, H, W) are one client's batch, in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from fedbench.families.split.cut import Cut
from fedbench.families.split.server import Backward, ZerothOrder

Mismatch = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Descent:
    """How an attack searches: steps, Adam's first learning rate, and what total variation weighs.

    The learning rate falls to a tenth after 3/8, 5/8 and 7/8 of the steps, as in Geiping et al.'s code.
    """

    steps: int = 300
    lr: float = 0.05
    tv: float = 0.2


def invert(mismatch: Mismatch, shape: Sequence[int], how: Descent, generator: Generator) -> Tensor:
    """The images (B, 3, H, W) that explain best what was seen; the search starts at grey with a little noise."""
    noise = torch.randn(tuple(shape), generator=generator)
    x = (0.5 + 0.05 * noise).clamp_(0, 1).requires_grad_(True)
    adam = torch.optim.Adam([x], how.lr)
    falls = [int(how.steps * part) for part in (3 / 8, 5 / 8, 7 / 8)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(adam, falls, gamma=0.1)
    for _ in range(how.steps):
        objective = mismatch(x) + how.tv * total_variation(x)
        x.grad = torch.autograd.grad(objective, x)[0].sign_()
        adam.step()
        schedule.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    return x.detach()


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference between pixels one below the other, plus that between pixels side by side."""
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()


# --- what was seen ---


def from_features(head: Callable[[Tensor], Tensor], h: Tensor) -> Mismatch:
    """||H(x) - h||^2 / ||h||^2, for the smashed features h."""
    whole = h.square().sum()
    return lambda x: (head(x) - h).square().sum() / whole


def from_gradient(gradient: Callable[[Tensor], Sequence[Tensor]], g: Sequence[Tensor]) -> Mismatch:
    """1 - cos(gradient(x), g) over all tensors together (Geiping et al., Eq. 4); gradient keeps its graph."""
    norm = _dot(g, g).sqrt()

    def mismatch(x: Tensor) -> Tensor:
        found = gradient(x)
        return 1 - _dot(found, g) / (_dot(found, found).sqrt() * norm)

    return mismatch


def from_span(inputs: Callable[[Tensor], Tensor], g: Tensor) -> Mismatch:
    """The part of inputs(x) (B, T, D) that lies outside of the row space of g (O, D), squared, over the whole.

    g is the gradient of a linear layer's weight: sum over tokens of delta_t z_t^T, so that each of the layer's
    inputs z_t lies in its row space, of which one has the B T most significant directions. Says something where
    B T < D alone (Petrov et al., "DAGER", NeurIPS 2024, arXiv 2405.15586, Sec. 4).
    """
    rows = torch.linalg.svd(g, full_matrices=True).Vh  # (D, D)

    def mismatch(x: Tensor) -> Tensor:
        z = inputs(x)
        outside = z @ rows[z.shape[0] * z.shape[1] :].T
        return outside.square().sum() / z.square().sum()

    return mismatch


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return reduce(add, ((p * q).sum() for p, q in zip(a, b, strict=True)))


# --- how well it went ---


def psnr(x: Tensor, truth: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of images in [0, 1]; infinite where they are equal."""
    error = float((x - truth).double().square().mean())
    return -10 * math.log10(error) if error > 0 else math.inf


def correlation(x: Tensor, truth: Tensor) -> float:
    """Pearson's, over all pixels and channels; 0 where either is constant, which tells nothing of the other."""
    a, b = (image.double().flatten() - image.double().mean() for image in (x, truth))
    norms = float(a.norm() * b.norm())
    return float(a @ b) / norms if norms > 0 else 0.0


# --- what a server sees of one client's step ---


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
            message = dict(zip(self.cut.w_E, (g.detach() for g in self.gradient(x, y)), strict=True))
        else:
            with torch.no_grad():
                message = learner.ask(self.h(x), lambda b: F.cross_entropy(self.cut.T(b), y), t, client)
        learner.take(message, t, client)
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
