"""Codecs: what tensors become on their way between server and clients, and how many bytes that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from fedbench.errors import NotApplicable

Draw = Callable[[str], Generator]  # the generator of a tensor's draws, by its place
Numbers = tuple[int, int]  # how many numbers of a tensor are sent, and the bytes of each
Expected = tuple[tuple[int, ...], torch.dtype]  # the shape and the type of a tensor
INDEX_BYTES = 4  # of a number's position
SCALE_BYTES = 4  # of a tensor's scale
LARGEST = 127  # of a signed byte, the same on both sides of 0
SCALE = "scale:"  # what the name of a tensor's scale begins with
NUMBERS, POSITIONS = "numbers", "positions"  # of a sparse message


class Codec(Protocol):
    """How tensors are sent with fewer bytes than they have.

    Attributes:
        spares_classifiers: Whether classifiers are sent as they are on the way down.
    """

    spares_classifiers: bool

    def encoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """Return the tensors that cross for tensors of floating-point numbers by place; names of our own."""
        ...

    def opened(self, crossed: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what arrives, by place, of what `encoded` has made.

        Args:
            crossed: What has crossed.
            like: By place, in the order of the message, tensors of the shapes and types that it had.

        Raises:
            ValueError: Where that is not what `encoded` makes of such tensors.
        """
        ...

    def decoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """Return what `opened` makes of what `encoded` makes of these."""
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

    def encoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """See `Codec`: of a tensor at a place its bytes and, behind `SCALE`, its scale."""
        found = {}
        for place, x in message.items():
            if x.numel():
                found[place], found[SCALE + place] = self._steps(x, draw(place))
            else:
                found[place] = x.char()
        return found

    def opened(self, crossed: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Codec`."""
        due: dict[str, Expected] = {place: (x.shape, torch.int8) for place, x in like.items()}
        due |= {SCALE + place: (torch.Size(), torch.float32) for place, x in like.items() if x.numel()}
        _check(crossed, due)
        return {
            place: (crossed[place].double() * crossed[SCALE + place].double()).to(x.dtype) if x.numel() else x
            for place, x in like.items()
        }

    def decoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """See `Codec`."""
        return self.opened(self.encoded(message, draw), message)

    def nbytes(self, sizes: Iterable[Numbers]) -> int:
        """See `Codec`."""
        return sum(n + SCALE_BYTES for n, _ in sizes if n)

    def _steps(self, x: Tensor, draw: Generator) -> tuple[Tensor, Tensor]:
        """(whole numbers from -127 to 127 as int8, their scale in float32)."""
        scale = (x.abs().max().double() / LARGEST).float()
        if scale == 0:
            return torch.zeros_like(x, dtype=torch.int8), scale
        u = torch.rand(x.shape, generator=draw, dtype=torch.float64).to(x.device)  # the same on any device
        return (x.double() / scale.double() + u).floor().clamp(-LARGEST, LARGEST).char(), scale


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

    def encoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """See `Codec`: the numbers that are sent, and where each stands, or a bit for every number."""
        flat, largest = self._largest(message)
        if not len(flat):
            return {}
        largest = largest.sort().values
        there = torch.zeros(len(flat), dtype=torch.bool)
        there[largest] = True
        bits = torch.from_numpy(np.packbits(there.numpy()))
        positions = largest.int() if INDEX_BYTES * len(largest) < len(bits) else bits
        return {NUMBERS: flat[largest], POSITIONS: positions}

    def opened(self, crossed: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Codec`."""
        n = sum(x.numel() for x in like.values())
        if not n:
            _check(crossed, {})
            return {place: torch.zeros_like(x, device="cpu") for place, x in like.items()}
        k, bits = self.kept(n), math.ceil(n / 8)
        arrived = torch.cat([torch.zeros(x.shape, dtype=x.dtype).flatten() for x in like.values()])
        as_numbers = INDEX_BYTES * k < bits
        due: Expected = ((k,), torch.int32) if as_numbers else ((bits,), torch.uint8)
        _check(crossed, {NUMBERS: ((k,), arrived.dtype), POSITIONS: due})
        positions = crossed[POSITIONS].long()
        if not as_numbers:
            positions = torch.from_numpy(np.unpackbits(crossed[POSITIONS].numpy(), count=n)).nonzero().flatten()
        if len(positions) != k or not ((positions >= 0) & (positions < n)).all():
            raise ValueError("it names positions that no number has")
        arrived[positions] = crossed[NUMBERS]
        return _split(arrived, like)

    def decoded(self, message: Mapping[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """See `Codec`; without positions that cross, on the device where the message is."""
        flat, largest = self._largest(message)
        arrived = torch.zeros_like(flat)
        arrived[largest] = flat[largest]
        return _split(arrived, message)

    def _largest(self, message: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(n,) all numbers of a message, and (k,) the positions of those that are sent."""
        if not message:
            return torch.zeros(0), torch.zeros(0, dtype=torch.int64)
        flat = torch.cat([x.flatten() for x in message.values()])
        order = flat.abs().argsort(descending=True, stable=True)
        return flat, order[: self.kept(len(flat))]

    def nbytes(self, sizes: Iterable[Numbers]) -> int:
        """See `Codec`."""
        given = [(n, each) for n, each in sizes if n]
        n = sum(numbers for numbers, _ in given)
        if not n:
            return 0
        k = self.kept(n)
        return k * max(each for _, each in given) + min(INDEX_BYTES * k, math.ceil(n / 8))


def _check(crossed: Mapping[str, Tensor], due: Mapping[str, Expected]) -> None:
    """Raises ValueError where other tensors have crossed than are due."""
    if crossed.keys() != due.keys():
        raise ValueError("other tensors than its codec makes")
    for name, (shape, kind) in due.items():
        if tuple(crossed[name].shape) != tuple(shape) or crossed[name].dtype != kind:
            raise ValueError(f"{name} has another shape or type than its codec makes")


def _split(flat: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The numbers of all tensors by place, in their shapes and types."""
    parts = flat.split([x.numel() for x in like.values()])
    return {place: part.view(x.shape).to(x.dtype) for (place, x), part in zip(like.items(), parts, strict=True)}


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
