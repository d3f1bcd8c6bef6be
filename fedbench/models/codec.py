"""Codecs: what tensors become on their way between server and clients, and how many bytes that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from fedbench.errors import NotApplicable

Draw = Callable[[str], Generator]  # the generator of a tensor's draws, by its place
Numbers = tuple[int, int]  # how many numbers of a tensor are sent, and the bytes of each
INDEX_BYTES = 4  # of a number's position
SCALE_BYTES = 4  # of a tensor's scale
LARGEST = 127  # of a signed byte, the same on both sides of 0


class Codec(Protocol):
    """How tensors are sent with fewer bytes than they have.

    Attributes:
        spares_classifiers: Whether classifiers are sent as they are on the way down.
    """

    spares_classifiers: bool

    def decoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """Return what arrives of tensors of floating-point numbers, by place."""
        ...

    def nbytes(self, sizes: Iterable[Numbers]) -> int:
        """Return the bytes of a message of such tensors, without the names and shapes that the plan tells."""
        ...


def codec_of(setting: Mapping[str, Any] | None) -> Codec | None:
    """Return what `train.uploads` or `train.downloads` asks for, None where it asks for nothing."""
    if setting is None:
        return None
    return TopK(setting["density"]) if setting["codec"] == "topk" else Int8()


@dataclass(frozen=True)
class Int8:
    """Every number as a signed byte, with one scale for a tensor, rounded up or down at random.

    With s = max|x| / 127, x becomes s floor(x / s + u), where u is uniform on [0, 1): the mean of what arrives is x
    (the stochastic rounding of QSGD, Alistarh et al., 2017, arXiv 1610.02132, with the largest number as the norm).
    """

    spares_classifiers = False

    def decoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """See `Codec`."""
        return {place: self._decoded(x, draw(place)) for place, x in message.items()}

    def nbytes(self, sizes: Iterable[Numbers]) -> int:
        """See `Codec`."""
        return sum(n + SCALE_BYTES for n, _ in sizes if n)

    def _decoded(self, x: Tensor, draw: Generator) -> Tensor:
        if not x.numel():
            return x
        scale = (x.abs().max().double() / LARGEST).float().double()  # sent in 4 bytes
        if scale == 0:
            return torch.zeros_like(x)
        u = torch.rand(x.shape, generator=draw, dtype=torch.float64).to(x.device)  # the same on any device
        steps = (x.double() / scale + u).floor().clamp(-LARGEST, LARGEST)
        return (steps * scale).to(x.dtype)


@dataclass(frozen=True)
class TopK:
    """Of all numbers of a message the share `density` that is largest in absolute value, and where they stand.

    The others arrive as 0. At least one number is sent; of equal ones those that come first are. Positions take 4 bytes
    each or a bit of every number, whichever is less.
    """

    density: float
    spares_classifiers = True  # without most of its weights, a classifier answers nothing

    def kept(self, n: int) -> int:
        """Return how many of n numbers are sent."""
        return min(n, max(1, int(self.density * n)))

    def decoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """See `Codec`."""
        if not message:
            return {}
        flat = torch.cat([x.flatten() for x in message.values()])
        order = flat.abs().argsort(descending=True, stable=True)
        arrived = torch.zeros_like(flat)
        largest = order[: self.kept(len(flat))]
        arrived[largest] = flat[largest]
        parts = arrived.split([x.numel() for x in message.values()])
        return {place: part.view_as(x) for (place, x), part in zip(message.items(), parts, strict=True)}

    def nbytes(self, sizes: Iterable[Numbers]) -> int:
        """See `Codec`."""
        given = [(n, each) for n, each in sizes if n]
        n = sum(numbers for numbers, _ in given)
        if not n:
            return 0
        k = self.kept(n)
        return k * max(each for _, each in given) + min(INDEX_BYTES * k, math.ceil(n / 8))


def refuse_coded(train: Mapping[str, Any], ways: Iterable[str], why: str) -> None:
    """Raise NotApplicable where the suite has messages coded that a method cannot have coded.

    Args:
        train: The suite's `train` section.
        ways: `uploads`, `downloads`, or both.
        why: What the method does instead.
    """
    for way in ways:
        if train.get(way):
            raise NotApplicable(f"train.{way}: {why}; set it to null for this method")
