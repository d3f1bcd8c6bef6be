"""Images and texts on their way into a model: as they are kept, and normalised, as tokens, or changed by chance.

Or as what the frozen part of the model has made of them already.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.models.layered import EVERY, PADDING, Tokenizer, tokenized
from fedbench.seeding import global_generator
from fedbench.types import Images, Texts

# Per-channel mean and standard deviation of images in [0, 1]; `backbone` takes the ones its weights were
# trained with.
NORMALIZE = {
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
Batch = tuple[Tensor, Tensor]

KEPT_BYTES = 2**28  # so much may the features of a split take that are kept
MADE_TOGETHER = 64  # inputs; always the same ones, so that the bits do not depend on who asks for what first


@dataclass
class _Kept:
    """What a frozen `make` makes of the inputs of a split, (n, ...), and which of every MADE_TOGETHER are there."""

    make: Callable[[Tensor], Tensor]
    made: Tensor
    done: np.ndarray


class Inputs(ABC):
    """The images or texts of a split, by their positions.

    Attributes:
        labelled: With their classes and domains.
        device: Where batches are.
        size: Pixels a side, or tokens of the longest text.
    """

    size: int
    augment: Sequence[str] = ()  # how training batches are changed by chance

    def __init__(self, labelled: Images | Texts, device: str) -> None:
        self.labelled, self.device = labelled, device
        self.on_gpu = str(device).startswith("cuda")
        self._labels = torch.from_numpy(np.array(labelled.y)).to(device) if self.on_gpu else None
        self._features: _Kept | None = None

    @abstractmethod
    def given(self, indices: np.ndarray, seed: int | None = None) -> Tensor:
        """x as the model takes it. seed: of the draw by which images change as `augment` says; None for no change."""

    def labels(self, indices: np.ndarray) -> Tensor:
        """(B,) int64: the classes; of next tokens all that count."""
        return torch.from_numpy(self.labelled.y[indices])

    def order(self, indices: np.ndarray) -> np.ndarray:
        """The places in `indices`, (B,), in the order in which passes take least work."""
        return np.arange(len(indices))

    @abstractmethod
    def example(self, n: int) -> Tensor:
        """So many inputs in shape alone, on the meta device."""

    def __call__(self, indices: np.ndarray, seed: int | None = None) -> tuple[Tensor, Tensor]:
        """x (B, 3, H, W) normalised, or ids (B, T), and y (B,) int64. seed: as of `given`."""
        return self._batch(None, indices, seed)

    def features(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """x (B, D), what classifiers read of a frozen model, where that is kept, or as above."""
        return self._batch(self._features, indices)

    def _batch(self, kept: _Kept | None, indices: np.ndarray, seed: int | None = None) -> Batch:
        sent = self._sent(indices) if self.on_gpu else None
        x = self._of(kept, indices, sent) if kept else self.given(indices, seed)
        return x, torch.from_numpy(self.labelled.y[indices]) if self._labels is None else self._labels[sent]

    def _sent(self, values: np.ndarray) -> Tensor:
        """The values on the GPU, without waiting for it."""
        return torch.from_numpy(np.ascontiguousarray(values)).pin_memory().to(self.device, non_blocking=True)

    @torch.no_grad()
    def keep_features(self, pooled: Callable[[Tensor], Tensor]) -> None:
        """Let `features` give what a frozen model makes of the inputs, (n, D), computed once for each of them.

        Does nothing where that would take more than KEPT_BYTES.
        """
        one = pooled(self.given(np.arange(1)))
        if one.nbytes * len(self.labelled) <= KEPT_BYTES:
            made = one.new_empty((len(self.labelled), *one.shape[1:]))
            self._features = _Kept(pooled, made, np.zeros(-(-len(self.labelled) // MADE_TOGETHER), dtype=bool))

    @torch.no_grad()
    def _of(self, kept: _Kept, indices: np.ndarray, sent: Tensor | None) -> Tensor:
        asked = np.unique(indices // MADE_TOGETHER)
        for some in asked[~kept.done[asked]]:
            first = some * MADE_TOGETHER
            these = np.arange(first, min(first + MADE_TOGETHER, len(self.labelled)))
            kept.made[first : first + len(these)] = kept.make(self.given(these))
            kept.done[some] = True
        return kept.made[torch.from_numpy(indices) if sent is None else sent]


class Pixels(Inputs):
    """Images, normalised."""

    def __init__(
        self,
        images: Images,
        mean: Any,
        std: Any,
        device: str,
        dtype: torch.dtype = torch.float32,
        augment: Sequence[str] = (),
    ) -> None:
        super().__init__(images, device)
        self.augment = augment
        self.images, self.dtype, self.size = images, dtype, images.x.shape[-1]
        self.mean = torch.tensor(mean, dtype=dtype, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(std, dtype=dtype, device=device).view(1, 3, 1, 1)

    def given(self, indices: np.ndarray, seed: int | None = None) -> Tensor:
        """(B, 3, H, W) normalised."""
        images = np.ascontiguousarray(self.images.x[indices])
        if seed is not None:
            images = augmented(torch.from_numpy(images), self.augment, seed).numpy()
        x = self._sent(images) if self.on_gpu else torch.from_numpy(images)
        in_0_1 = x.to(self.dtype) / 255 if x.dtype == torch.uint8 else x.to(self.dtype)
        return (in_0_1 - self.mean) / self.std

    def example(self, n: int) -> Tensor:
        return torch.empty(n, *self.images.x.shape[1:], device="meta")


class TokenIds(Inputs):
    """Texts as the ids of their tokens, shorter ones with PADDING behind them."""

    def __init__(self, texts: Texts, tokenizer: Tokenizer, most: int, device: str) -> None:
        """Args:
        texts: Of the split.
        tokenizer: The backbone's.
        most: Tokens of a text, of which more are cut off.
        device: Where batches are.
        """
        super().__init__(texts, device)
        ids = (
            [] if texts.length and device == "meta" else tokenized(tokenizer, texts.text, most)
        )  # a plan needs no more
        self.lengths = np.array([len(own) for own in ids], dtype=np.int64)
        longest = max(texts.length, int(self.lengths.max(initial=1)))
        self.size = min(most, -(-longest // EVERY) * EVERY)
        self.ids = np.full((len(ids), self.size), PADDING, dtype=np.int64)
        for row, own in zip(self.ids, ids, strict=True):
            row[: len(own)] = own

    def given(self, indices: np.ndarray, seed: int | None = None) -> Tensor:
        """(B, T): T is the longest of these texts, rounded up to a multiple of EVERY."""
        T = min(self.size, -(-int(self.lengths[indices].max()) // EVERY) * EVERY)
        x = self.ids[indices, :T]
        return self._sent(x) if self.on_gpu else torch.from_numpy(x)

    def order(self, indices: np.ndarray) -> np.ndarray:
        """By length, so that there is little padding; of shapes alone as they come."""
        return super().order(indices) if not len(self.lengths) else np.argsort(self.lengths[indices], kind="stable")

    def example(self, n: int) -> Tensor:
        return torch.zeros(n, self.size, dtype=torch.int64, device="meta")


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
