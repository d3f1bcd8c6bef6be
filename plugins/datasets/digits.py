"""The data set `digits`: scikit-learn's 1,797 handwritten digits, each used once, styled as in `strokes6`.

Real pen input without a download. An 8x8 scan is thinned to its centre line; the distance to that line is
what the brushes of `glyphs.py` paint. Orderings of methods vary with the seed: real input, but no evidence.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedbench import hookimpl
from fedbench.data import NewArray, cached
from fedbench.errors import UserError
from fedbench.options import Natural, Range, judged
from fedbench.seeding import numpy_generator
from fedbench.types import Dataset, Images, Splits

from . import glyphs

VERSION = 1  # raise it whenever thinning or dealing changes here or in glyphs.py; the brushes have glyphs.RENDERER
INK = 8.0  # grey level, of 16, from which a scan counts as ink


@judged("digits")
def make(image_size: int, test_share: Annotated[float, Range(above=0, below=1)] = 0.2, draw: Natural = 0) -> Dataset:
    """Handwritten digits, 10 classes, in the domains solid, outline, texture, dim, clutter and sketch.

    Args:
        test_share: part of each class and domain that is kept for testing.
        draw: another number deals the 1,797 scans to domains and to training and test again, in other colours.
    """
    if image_size < 1:
        raise UserError(f"digits: image_size must be at least 1, not {image_size}")
    version = f"v{VERSION}-renderer{glyphs.RENDERER}"
    fingerprint = f"digits-{version}-{image_size}px-test{float(test_share)!r}-draw{draw}"

    def build(_new_array: NewArray) -> Splits:
        return _build(image_size, test_share, draw)

    return Dataset(glyphs.STYLES, tuple("0123456789"), fingerprint, lambda: cached(fingerprint, build))


def _build(image_size: int, test_share: float, draw: int) -> Splits:
    from sklearn.datasets import load_digits

    scans = load_digits()
    domain, test = deal(scans.target, test_share, numpy_generator(draw, use="digits deal"))
    field = glyphs.centre_distance(glyphs.thin(glyphs.enlarge(scans.images) > INK), image_size)
    x = np.empty((len(field), 3, image_size, image_size), dtype=np.uint8)
    glyphs.paint_styles(x, domain, lambda part: field[part], lambda style: numpy_generator(draw, use=f"digits {style}"))

    def pick(chosen: np.ndarray) -> Images:
        order = np.flatnonzero(chosen)
        order = order[np.argsort(domain[order], kind="stable")]
        return Images(x[order], scans.target[order].astype(np.int64), domain[order])

    return Splits(train=pick(~test), test=pick(test))


def deal(target: np.ndarray, test_share: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """domain (n,) int64 and test (n,) bool: each class dealt evenly to domains and, there, to both splits."""
    domain, test = np.empty(len(target), dtype=np.int64), np.zeros(len(target), dtype=bool)
    for style, hand in glyphs.hands(target, len(glyphs.STYLES), generator):
        domain[hand] = style
        test[hand[: max(1, round(test_share * len(hand)))]] = True
    return domain, test


@hookimpl
def fedbench_register_datasets(register) -> None:
    """Offer `digits`."""
    register("digits", make)
