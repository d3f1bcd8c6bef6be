"""Images that look alike: which test images a training image nearly is, by a difference hash."""

from __future__ import annotations

import functools

import numpy as np

from fedbench.data.image_files import in_threads

SIDE = 9  # pixels of the thumbnail, whose 8 x 8 differences to the right and downwards are the hash
FLAT = 2  # of 255: a smaller difference is none, so that noise on plain ground sets no bit
BITS = 2 * (SIDE - 1) ** 2
FEWEST = 16  # bits of a hash that says anything: a plain image has none
NEAR = 7  # bits that may differ: with 8 bands, one band of such a pair is equal
BANDS = 8
PAIRS = 1 << 22  # that are compared at a time


def difference_hashes(x: np.ndarray) -> np.ndarray:
    """(n, 16) uint8: for each image, in which places its brightness rises to the right, and downwards.

    It is made with numpy and Pillow, which are here. The maintained library for it, `imagehash`, needs PyWavelets for
    a hash that is not wanted here, and gives hashes as objects, of which pairs cannot be looked up fast.

    Args:
        x: (n, 3, H, H) uint8, or float32 in and near [0, 1].
    """
    from PIL import Image

    found = np.zeros((len(x), BITS), dtype=bool)

    def work(i: int) -> None:
        pixels = x[i] if x.dtype == np.uint8 else (np.clip(x[i], 0, 1) * 255).astype(np.uint8)
        image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).convert("L")
        small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.int16)
        right, down = np.diff(small, axis=1)[:-1], np.diff(small, axis=0)[:, :-1]
        found[i] = np.concatenate([right.ravel(), down.ravel()]) > FLAT

    in_threads(work, len(x), "comparing images")
    return np.packbits(found, axis=1)


def near_duplicates(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """(m,) int64: for each test image a training image whose hash differs in NEAR bits at most, or -1.

    Pairs are looked for among those that have an equal band of the hash, an eighth of it. A band without any bit is
    plain ground, which many images have, and counts for nothing.

    Args:
        train: (n, 16) uint8, the hashes of the training images.
        test: (m, 16) uint8, those of the test images.
    """
    of_train, of_test = (np.ascontiguousarray(hashes).view(np.uint16) for hashes in (train, test))
    found = np.full(len(test), -1, dtype=np.int64)
    says_something = np.unpackbits(test, axis=1).sum(axis=1) >= FEWEST
    for band in range(BANDS):
        order = np.argsort(of_train[:, band], kind="stable")
        known = of_train[order, band]
        open_ = np.flatnonzero((found < 0) & says_something & (of_test[:, band] != 0))
        first, end = (np.searchsorted(known, of_test[open_, band], side=side) for side in ("left", "right"))
        counts = end - first
        for start, stop in _chunks(counts):
            which = np.repeat(np.arange(start, stop), counts[start:stop])
            offset = np.arange(len(which)) - np.repeat(
                np.cumsum(counts[start:stop]) - counts[start:stop], counts[start:stop]
            )
            others = order[first[which] + offset]
            near = _distance(of_test[open_[which]], of_train[others]) <= NEAR
            found[open_[which[near]]] = others[near]
    return found


def _chunks(counts: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of test images with about PAIRS pairs each."""
    ends = np.flatnonzero(np.diff(np.cumsum(counts) // PAIRS)) + 1
    edges = [0, *ends.tolist(), len(counts)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n,) in how many bits rows of (n, 8) uint16 differ."""
    bits: np.ndarray = _ones()[one ^ other].sum(axis=1, dtype=np.uint8)
    return bits


@functools.cache
def _ones() -> np.ndarray:
    """(65536,) uint8: how many bits each number has."""
    numbers = np.arange(1 << 16, dtype=np.uint16)
    bits: np.ndarray = np.unpackbits(numbers.view(np.uint8).reshape(-1, 2), axis=1).sum(axis=1, dtype=np.uint8)
    return bits
