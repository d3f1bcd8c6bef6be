"""Images, and what a data set is before its pixels are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


MIXED = -1  # the domain of a client whose images come from several


@dataclass(frozen=True)
class Images:
    """Decoded images with their labels.

    x: (n, 3, H, W) uint8, or float32 in and near [0, 1], where 1 is what 255 is in uint8; possibly a memory map · y:
    (n,) int64 class · domain: (n,) int64 index into `Dataset.domains`.
    """

    x: np.ndarray
    y: np.ndarray
    domain: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def blank(cls, y: np.ndarray, domain: np.ndarray, side: int) -> Images:
        """Labels with black images of `side` pixels a side, which take no memory."""
        import numpy as np

        return cls(np.broadcast_to(np.zeros((), dtype=np.uint8), (len(y), 3, side, side)), y, domain)


@dataclass(frozen=True)
class Splits:
    """The two halves of a data set, and the paths of images that could not be read and were skipped."""

    train: Images
    test: Images
    skipped: tuple[str, ...] = ()

    @property
    def listed(self) -> int:
        """How many images the data set names, those that were skipped included."""
        return len(self.train) + len(self.test) + len(self.skipped)

    @property
    def left_out(self) -> dict[str, int]:
        """How many `images` were skipped, `of` how many; empty where none was."""
        return {"images": len(self.skipped), "of": self.listed} if self.skipped else {}


@dataclass(frozen=True)
class Dataset:
    """What a dataset plugin returns: the facts at once, the pixels when `load()` is called.

    `fingerprint` changes whenever an image, a label or the split could; it enters the identity of every cell.
    size: the bytes of all its decoded images, where they are known before · why: of an image that was skipped, by its
    path, the reason · outline: what `load` gives with `Images.blank` for pixels, where labels are known before any
    image is made; plans are made of that · notes: what else a user should know of the files, a sentence each.
    """

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    fingerprint: str
    load: Callable[[], Splits]
    size: int | None = None
    why: Callable[[str], str] | None = None
    outline: Callable[[], Splits] | None = None
    notes: tuple[str, ...] = ()

    @property
    def outlined(self) -> Dataset:
        """The same with an outline's images, where there is one."""
        return replace(self, load=self.outline or self.load)

    def domain_name(self, domain: int) -> str:
        """What the results call a client's domain: `mixed` where it has several."""
        return "mixed" if domain == MIXED else self.domains[domain]
