"""Random changes of training images: a function of a seed, by torchvision."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedbench.seeding import global_generator

SCALE = (0.7, 1.0)  # of an image's area, as DomainBed has it (Gulrajani and Lopez-Paz, ICLR 2021)


def augmented(images: Tensor, names: Sequence[str], seed: int) -> Tensor:
    """Change each image by chance: `crop` takes a part of it, resized to the whole, and `flip` mirrors one in two.

    Args:
        images: (B, 3, H, H) uint8, or float in and near [0, 1], on a CPU.
        names: Which of `crop` and `flip`. Their order makes no difference.
        seed: Of the draw for all of them.

    Returns:
        (B, 3, H, H) of the same type.
    """
    change = _changes(tuple(sorted(names)), images.shape[-1])
    with global_generator(seed, "augmentation"), torch.device("cpu"):  # also where something else is built on a GPU
        return torch.stack([change(image) for image in images])


@functools.cache
def _changes(names: tuple[str, ...], side: int) -> Callable[[Tensor], Tensor]:
    from torchvision.transforms import v2  # type: ignore[import-untyped, unused-ignore]

    known = {
        "crop": v2.RandomResizedCrop((side, side), scale=SCALE, antialias=True),
        "flip": v2.RandomHorizontalFlip(),
    }
    made: Callable[[Tensor], Tensor] = v2.Compose([known[name] for name in names])
    return made
