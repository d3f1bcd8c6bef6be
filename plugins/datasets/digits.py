"""The data set `digits`: scikit-learn's 1,797 handwritten digits, each used once, styled as in `strokes6`.

Real pen input without a download. An 8x8 scan is thinned to its centre line; the distance to that line is
what the brushes of `glyphs.py` paint. Orderings of methods vary with the seed: real input, but no evidence.
"""

from __future__ import annotations

import numpy as np

from fedbench import hookimpl
from fedbench.data import NewArray, cached
from fedbench.errors import UserError
from fedbench.seeding import numpy_generator
from fedbench.types import Dataset, Images, Splits

from . import glyphs

VERSION = 1  # raise it whenever thinning or dealing changes; the brushes have glyphs.RENDERER
FINE = 64  # side of the grid on which scans are thinned
REACH = 1.15  # half the width of a scan in the units of glyphs.SPAN
INK = 8.0  # grey level, of 16, from which a scan counts as ink


def make(image_size: int, test_share: float = 0.2, draw: int = 0) -> Dataset:
    """Handwritten digits, 10 classes, in the domains solid, outline, texture, dim, clutter and sketch.

    test_share: part of each class and domain that is kept for testing · draw: another number deals the 1,797
    scans to domains and to training and test anew, in fresh colours.
    """
    if image_size < 1:
        raise UserError(f"digits: image_size must be at least 1, not {image_size}")
    if not 0 < test_share < 1:
        raise UserError(f"digits: test_share must lie between 0 and 1, not {test_share}")
    if draw < 0:
        raise UserError(f"digits: draw must be 0 or more, not {draw}")
    version = f"v{VERSION}-renderer{glyphs.RENDERER}"
    fingerprint = f"digits-{version}-{image_size}px-test{float(test_share)!r}-draw{draw}"

    def build(_new_array: NewArray) -> Splits:
        return _build(image_size, test_share, draw)

    return Dataset(glyphs.STYLES, tuple("0123456789"), fingerprint, lambda: cached(fingerprint, build))


def _build(image_size: int, test_share: float, draw: int) -> Splits:
    from sklearn.datasets import load_digits

    scans = load_digits()
    domain, test = deal(scans.target, test_share, numpy_generator(draw, use="digits deal"))
    field = centre_distance(thin(enlarge(scans.images) > INK), image_size)
    x = np.empty((len(field), 3, image_size, image_size), dtype=np.uint8)
    for i, style in enumerate(glyphs.STYLES):
        generator = numpy_generator(draw, use=f"digits {style}")
        mine = np.flatnonzero(domain == i)
        for part in np.split(mine, range(glyphs.CHUNK, len(mine), glyphs.CHUNK)):
            x[part] = glyphs.paint(field[part], style, generator)

    def pick(chosen: np.ndarray) -> Images:
        order = np.flatnonzero(chosen)
        order = order[np.argsort(domain[order], kind="stable")]
        return Images(x[order], scans.target[order].astype(np.int64), domain[order])

    return Splits(train=pick(~test), test=pick(test))


def deal(target: np.ndarray, test_share: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """domain (n,) int64 and test (n,) bool: each class dealt evenly to domains and, there, to both splits."""
    domain, test = np.empty(len(target), dtype=np.int64), np.zeros(len(target), dtype=bool)
    for label in np.unique(target):
        hands = np.array_split(generator.permutation(np.flatnonzero(target == label)), len(glyphs.STYLES))
        # Hands differ by one scan: the permutation keeps the first styles from getting all the larger ones.
        for i, style in enumerate(generator.permutation(len(hands))):
            domain[hands[i]] = style
            test[hands[i][: max(1, round(test_share * len(hands[i])))]] = True
    return domain, test


def enlarge(scans: np.ndarray) -> np.ndarray:
    """(n, FINE, FINE) grey levels of scans (n, 8, 8), by cubic splines, in the middle of the canvas."""
    from scipy.ndimage import map_coordinates

    side = scans.shape[-1]
    where = glyphs.axis(FINE).astype(np.float64) / REACH * side / 2 + (side - 1) / 2
    grid = np.meshgrid(where, where, indexing="ij")
    return np.stack([map_coordinates(scan, grid, order=3) for scan in scans])


def thin(ink: np.ndarray) -> np.ndarray:
    """Lines one pixel wide in place of the strokes of (n, H, W) bool images, whose border must be empty.

    Zhang and Suen, "A fast parallel algorithm for thinning digital patterns", 1984: peel off, in turn from
    two sides, every pixel that has 2 to 6 neighbours and whose removal breaks no line.
    """
    ink = ink.copy()
    ring = ((1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1))  # north first, clockwise
    left = -1
    while left != (left := int(np.count_nonzero(ink))):
        for first_side in (True, False):
            around = [np.roll(ink, shift, (1, 2)) for shift in ring]
            count = sum(p.astype(np.uint8) for p in around)
            rises = sum((~around[i] & around[(i + 1) % 8]).astype(np.uint8) for i in range(8))
            north, east, south, west = around[::2]
            inner = (east & south & (north | west)) if first_side else (north & west & (east | south))
            ink &= ~((count >= 2) & (count <= 6) & (rises == 1) & ~inner)
    return ink


def centre_distance(lines: np.ndarray, size: int) -> np.ndarray:
    """(n, size, size) float32 distance to the lines (n, FINE, FINE) bool, in the units of glyphs.SPAN."""
    from scipy.ndimage import distance_transform_edt, map_coordinates

    where = (glyphs.axis(size).astype(np.float64) + glyphs.SPAN) * FINE / (2 * glyphs.SPAN) - 0.5
    grid = np.meshgrid(where, where, indexing="ij")
    unit = 2 * glyphs.SPAN / FINE
    fields = (distance_transform_edt(~line, sampling=unit) for line in lines)
    sampled = [map_coordinates(field, grid, order=1, mode="nearest") for field in fields]
    return np.stack(sampled, dtype=np.float32)


@hookimpl
def fedbench_register_datasets(register) -> None:
    """Offer `digits`."""
    register("digits", make)
