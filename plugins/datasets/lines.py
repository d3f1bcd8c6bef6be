"""From small pictures of others to the styles of `glyphs`: their lines, the distance to these, and who gets which.

A brush of `glyphs.py` paints a distance field, whatever the field is the distance to: drawn strokes in `strokes6`, the
thinned lines of scans in `digits`, the edges of garments in `fashion_mnist`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from . import glyphs

FINE = 64  # side of the grid on which lines are thinned
REACH = 1.15  # half the width of a scan in the units of glyphs.SPAN


def hands(target: np.ndarray, players: int, generator: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
    """(player, positions in target (n,)): each class shuffled and dealt evenly, so that every image is used once."""
    for label in np.unique(target):
        dealt = np.array_split(generator.permutation(np.flatnonzero(target == label)), players)
        # Hands differ by one image: the permutation keeps the first players from getting all the larger ones.
        yield from zip(generator.permutation(players).tolist(), dealt, strict=True)


def paint(
    x: np.ndarray,
    domain: np.ndarray,
    fields: Callable[[np.ndarray], np.ndarray],
    generator_of: Callable[[str], np.random.Generator],
) -> None:
    """Fill x (n, 3, H, H) uint8: image i in the style that is number domain[i] (n,) of `glyphs.STYLES`.

    fields: the distance fields (m, H, H) of positions (m,), asked for few at a time · generator_of: a style's draws.
    """
    for i, style in enumerate(glyphs.STYLES):
        generator, mine = generator_of(style), np.flatnonzero(domain == i)
        for part in np.split(mine, range(glyphs.CHUNK, len(mine), glyphs.CHUNK)):
            x[part] = glyphs.paint(fields(part), style, generator)


def enlarge(scans: np.ndarray, order: int = 3) -> np.ndarray:
    """(n, FINE, FINE) grey levels of scans (n, H, H), by splines of that order, in the middle of the canvas."""
    from scipy.ndimage import map_coordinates

    side = scans.shape[-1]
    where = glyphs.axis(FINE).astype(np.float64) / REACH * side / 2 + (side - 1) / 2
    grid = np.meshgrid(where, where, indexing="ij")
    return np.stack([map_coordinates(scan, grid, order=order) for scan in scans])


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
