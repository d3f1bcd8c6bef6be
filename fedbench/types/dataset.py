"""Images and texts with their labels, and what a data set is before they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


MIXED = -1  # the domain of a client whose images come from several
CLASSIFICATION, NEXT_TOKEN = TASKS = ("classification", "next_token")  # what `Dataset.task` may be


@dataclass(frozen=True)
class Images:
    """Decoded images with their labels.

    Attributes:
        x: (n, 3, H, W) uint8, or float32 in and near [0, 1], where 1 is what 255 is in uint8; possibly a memory map.
        y: (n,) int64, the classes.
        domain: (n,) int64, indices into `Dataset.domains`.
        group: (n,) int64: training images with the same number belong together, as those of one patient do. Validation
            data have all of a group or none. None: no images belong together.
    """

    x: np.ndarray
    y: np.ndarray
    domain: np.ndarray
    group: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def blank(cls, y: np.ndarray, domain: np.ndarray, side: int) -> Images:
        """Return labels with black images of `side` pixels a side, which take no memory."""
        import numpy as np

        return cls(np.broadcast_to(np.zeros((), dtype=np.uint8), (len(y), 3, side, side)), y, domain)


@dataclass(frozen=True)
class Texts:
    """Texts with their labels; the backbone's tokenizer makes tokens of them.

    Attributes:
        text: n strings, or n pairs of strings.
        y: (n,) int64, the classes.
        domain: (n,) int64, indices into `Dataset.domains`.
        length: How many tokens the longest has at least. A plan, which tokenizes none, takes it for exact; 0: unknown.
        completion: Of the task `next_token`: n strings, each what follows the prompt in `text`, with the space between
            them. None: `text` holds whole texts, all of whose tokens count.
        choices: Of completions, n lists of other completions, among which `choice_accuracy` looks for the right one.
        group: As of `Images`.
    """

    text: Sequence[str] | Sequence[tuple[str, str]]
    y: np.ndarray
    domain: np.ndarray
    length: int = 0
    completion: Sequence[str] | None = None
    choices: Sequence[Sequence[str]] | None = None
    group: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def at(self, indices: np.ndarray) -> Texts:
        """Return the texts at these positions, (m,)."""
        own = indices.tolist()
        lists = {"text": self.text, "completion": self.completion, "choices": self.choices}
        kept: dict[str, Any] = {name: [values[i] for i in own] for name, values in lists.items() if values is not None}
        kept |= {"group": self.group[indices]} if self.group is not None else {}
        return replace(self, y=self.y[indices], domain=self.domain[indices], **kept)

    @classmethod
    def blank(cls, y: np.ndarray, domain: np.ndarray, length: int) -> Texts:
        """Return labels with empty texts that count as `length` tokens."""
        return cls([""] * len(y), y, domain, length)


@dataclass(frozen=True)
class Splits:
    """The two halves of a data set: images, or texts.

    Attributes:
        train: The training images or texts.
        test: The test images or texts.
        skipped: Paths of images that could not be read.
    """

    train: Images | Texts
    test: Images | Texts
    skipped: tuple[str, ...] = ()

    @property
    def listed(self) -> int:
        """How many images the data set names, skipped ones included."""
        return len(self.train) + len(self.test) + len(self.skipped)

    @property
    def left_out(self) -> dict[str, int]:
        """How many `images` were skipped, `of` how many; empty without skipped images."""
        return {"images": len(self.skipped), "of": self.listed} if self.skipped else {}


@dataclass(frozen=True)
class Dataset:
    """What a dataset plugin returns: the facts at once, the pixels when `load()` is called.

    Attributes:
        domains: The names of the domains.
        classes: The names of the classes.
        fingerprint: Changes whenever an image, a label or the split could. It is part of every cell's identity.
        load: Decodes the images.
        size: Bytes of all decoded images, where they are known before decoding.
        why: Returns the reason why an image was skipped, by its path.
        outline: Returns what `load` does with `Images.blank` for pixels, where labels are known without the images.
            Plans are made from it.
        notes: What else a user should know about the files, a sentence each.
        texts: Whether it holds texts and not images, so that it takes a backbone of texts.
        task: What is learnt: `classification`, or `next_token` of texts.
        files: Returns the places of the training and of the test images that `load` gives, where they are files.
    """

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    fingerprint: str
    load: Callable[[], Splits]
    size: int | None = None
    why: Callable[[str], str] | None = None
    outline: Callable[[], Splits] | None = None
    notes: tuple[str, ...] = ()
    texts: bool = False
    task: str = CLASSIFICATION
    files: Callable[[], tuple[Sequence[str], Sequence[str]]] | None = None

    @property
    def outlined(self) -> Dataset:
        """The same data set with the outline's blank images, where it has an outline."""
        return replace(self, load=self.outline or self.load)

    def domain_name(self, domain: int) -> str:
        """Return the name of a client's domain in results: `mixed` for a client with several."""
        return "mixed" if domain == MIXED else self.domains[domain]
