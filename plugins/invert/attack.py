"""Images rebuilt from what a training step made of them.

An attack is a mismatch, which is 0 where an image explains what was seen, and a descent on it:

    x* = argmin over x in [0, 1] of mismatch(x) + tv TV(x)

by Adam on the sign of the gradient (Geiping et al., "Inverting Gradients", NeurIPS 2020, arXiv 2003.14053, Eq. 4 and
Sec. 5). Images (B, 3, H, W) are one client's batch, in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from torch import Generator, Tensor

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
