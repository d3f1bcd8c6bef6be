"""Two trained models on the same test images: McNemar's exact test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Discordant:
    """images: how many both answered; ours and theirs: how many of them one alone answered right; p: that these are
    drawn by a fair coin."""

    images: int
    ours: int
    theirs: int
    p: float


def mcnemar(ours: np.ndarray, theirs: np.ndarray) -> Discordant:
    """ours, theirs (images,): whether each image was answered right.

    Of the images that one model alone answers right, either model is as likely to be the one (McNemar 1947); exact, by
    the binomial distribution, and 1 where there is none. It speaks of these two models: another seed trains others.
    """
    from scipy.stats import binomtest

    b, c = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return Discordant(len(ours), b, c, float(binomtest(b, b + c, 0.5).pvalue) if b + c else 1.0)


def unpacked(bits: bytes, images: int) -> np.ndarray:
    """(images,) bool of a row of right.parquet."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=images).astype(bool)
