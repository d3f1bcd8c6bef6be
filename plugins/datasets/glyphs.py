"""Draws stroke glyphs in six styles: a library of strokes, distances to them; brushes that colour them.

Only +, -, *, / and square roots touch the pixels in single precision; sines are taken in double precision on
short vectors. So the images come out the same whatever vector instructions a CPU has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations

import numpy as np

RENDERER = 1  # part of every fingerprint: raise it whenever any image changes
STYLES = ("solid", "outline", "texture", "dim", "clutter", "sketch")
NUM_STROKES = 24
STROKES_PER_CLASS = 4
UPSTREAM_CLASSES = 200
SPAN = 1.3  # half the width of an image, in the units of the stroke lattice [-1, 1]
SEGMENTS = 8  # straight pieces that stand for one curved stroke
CHUNK = 64  # images drawn together: their fields fit in a second-level cache

_T = np.linspace(0.0, 1.0, SEGMENTS + 1)[:, None]
_BERNSTEIN = np.concatenate([(1 - _T) ** 2, 2 * _T * (1 - _T), _T**2], axis=1)  # (SEGMENTS + 1, 3)


@lru_cache(maxsize=1)
def stroke_library() -> np.ndarray:
    """(24, 3, 2) control points of quadratic Bezier curves, on a 5x5 lattice, ends at least 0.6 apart.

    A curve that runs within 0.3 (mean distance of its points, either direction) of an earlier one is passed
    over, so that no two strokes look the same once jittered.
    """
    generator = np.random.default_rng(62024)  # one table for every run: the shipped weights know its strokes
    chosen: list[np.ndarray] = []
    while len(chosen) < NUM_STROKES:
        stroke = generator.integers(-2, 3, size=(3, 2)) / 2.0
        ends = np.linalg.norm(stroke[0] - stroke[2])
        if ends >= 0.6 and all(_apart(stroke, other) > 0.3 for other in chosen):
            chosen.append(stroke)
    library = np.stack(chosen)
    library.flags.writeable = False
    return library


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    a, b = _BERNSTEIN @ a, _BERNSTEIN @ b
    return float(min(np.linalg.norm(a - c, axis=1).mean() for c in (b, b[::-1])))


@lru_cache(maxsize=8)
def class_strokes(part: str, count: int | None = None) -> np.ndarray:
    """(count, 4) stroke numbers of the first `count` classes of "upstream" or "downstream"; of all if None.

    No combination occurs in both parts, and two classes of one part share at most two strokes.
    Raises ValueError where the part has fewer classes than `count`.
    """
    pool = np.array(list(combinations(range(NUM_STROKES), STROKES_PER_CLASS)))
    pool = pool[np.random.default_rng(244).permutation(len(pool))]
    upstream = _spread(pool, UPSTREAM_CLASSES)
    if part == "upstream":
        picked = upstream[:count]
    else:
        picked = _spread(pool[~(pool[:, None] == upstream[None]).all(2).any(1)], count)
    if count is not None and len(picked) < count:
        raise ValueError(f"{part} has {len(picked)} classes, {count} were asked for")
    picked.flags.writeable = False
    return picked


def _spread(pool: np.ndarray, count: int | None) -> np.ndarray:
    """The first `count` rows of `pool` that share at most two strokes with every row taken before."""
    has = (pool[:, :, None] == np.arange(NUM_STROKES)).any(1).astype(np.float32)  # (rows, 24), whose products count
    free = np.ones(len(pool), dtype=bool)
    taken: list[int] = []
    while free.any() and (count is None or len(taken) < count):
        taken.append(int(free.argmax()))
        free &= has @ has[taken[-1]] <= 2
    return pool[taken]


def draw_glyphs(
    strokes: np.ndarray,
    generator: np.random.Generator,
    strength: float | np.ndarray = 1.0,
    wobble: float = 0.0,
) -> np.ndarray:
    """(n, k, SEGMENTS + 1, 2) polylines of glyphs with stroke numbers (n, k), each a new hand's version.

    strength: 1 jitters control points by 0.06 and moves glyphs by up to 0.7 x (0.25 rad, log scale -0.2 to
    0.15, shear 0.2, shift 0.15); 0 draws the class's ideal form; (n, 1, 1) sets it for each.
    wobble: standard deviation of an unsteady hand along the line.
    """
    n = len(strokes)
    control = stroke_library()[strokes]  # (n, k, 3, 2)
    control = control + 0.06 * np.expand_dims(strength, -1) * generator.standard_normal(control.shape)
    x, y = np.moveaxis((_BERNSTEIN[:, :, None] * control[:, :, None]).sum(3), -1, 0)
    turn, shear = (0.7 * strength * generator.uniform(-limit, limit, (n, 1, 1)) for limit in (0.25, 0.2))
    scale = np.exp(0.7 * strength * generator.uniform(-0.2, 0.15, (n, 1, 1)))
    shift = 0.7 * strength * generator.uniform(-0.15, 0.15, (2, n, 1, 1))
    x = x + shear * y
    x, y = np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y
    points = np.stack([scale * x + shift[0], scale * y + shift[1]], axis=-1)
    return points + wobble * generator.standard_normal(points.shape) if wobble else points


def axis(size: int) -> np.ndarray:
    """(size,) float32 coordinates of pixel centres along one side."""
    return ((np.arange(size) + 0.5) * (2 * SPAN / size) - SPAN).astype(np.float32)


def distance(polylines: np.ndarray, size: int) -> np.ndarray:
    """(n, size, size) float32 distance of every pixel to the nearest of the polylines (n, k, points, 2)."""
    n = len(polylines)
    start = polylines[:, :, :-1].reshape(n, -1, 2).astype(np.float32)
    step = polylines[:, :, 1:].reshape(n, -1, 2).astype(np.float32) - start
    per_length = step / np.maximum((step**2).sum(-1, keepdims=True), np.float32(1e-9))
    x, y = axis(size)[None, None, :], axis(size)[None, :, None]
    best = np.full((n, size, size), np.inf, dtype=np.float32)
    t, dx, dy = (np.empty_like(best) for _ in range(3))
    for k in range(start.shape[1]):
        ax, ay = (start[:, k, i, None, None] for i in (0, 1))
        sx, sy = (step[:, k, i, None, None] for i in (0, 1))
        # How far along the segment the nearest point lies; its two parts need one row and one column only.
        along_x, along_y = (per_length[:, k, i, None, None] for i in (0, 1))
        np.add((x - ax) * along_x, (y - ay) * along_y, out=t)
        np.clip(t, 0.0, 1.0, out=t)
        np.subtract(x - ax, np.multiply(t, sx, out=dx), out=dx)
        np.subtract(y - ay, np.multiply(t, sy, out=dy), out=dy)
        np.add(np.multiply(dx, dx, out=dx), np.multiply(dy, dy, out=dy), out=dx)
        np.minimum(best, dx, out=best)
    return np.sqrt(best, out=best)


def ink(field: np.ndarray, half_width: np.ndarray) -> np.ndarray:
    """(n, H, W) cover in [0, 1] of lines of half-width (n, 1, 1) along a field's zero, edges a pixel soft."""
    per_pixel = np.float32(field.shape[-1] / (2 * SPAN))
    return np.clip((half_width - field) * per_pixel + np.float32(0.5), 0.0, 1.0)


def paint(field: np.ndarray, style: str, generator: np.random.Generator) -> np.ndarray:
    """(n, 3, H, W) uint8 images of distance fields (n, H, W) in one of STYLES."""
    return to_bytes(_BRUSHES[style](field, generator))


def to_bytes(image: np.ndarray) -> np.ndarray:
    """uint8 of an image in [0, 1]; what lies outside is cut off."""
    return (np.clip(image, 0.0, 1.0) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


def uniform(generator: np.random.Generator, low: float, high: float, n: int, *rest: int) -> np.ndarray:
    """float32 draws of shape (n, 1, 1) or (n, *rest)."""
    return generator.uniform(low, high, (n, *(rest or (1, 1)))).astype(np.float32)


def colours(generator: np.random.Generator, n: int, contrast: tuple[float, float], tint: float):
    """Ink and paper (n, 3, 1, 1) whose grey levels differ by `contrast`; which is the lighter is random."""
    gap = generator.uniform(*contrast, (n, 1))
    low = generator.uniform(0.0, 1.0, (n, 1)) * (1 - gap)
    flip = generator.random((n, 1)) < 0.5
    levels = np.stack([np.where(flip, low, low + gap), np.where(flip, low + gap, low)])  # (2, n, 1)
    hue = generator.uniform(-tint, tint, (2, n, 3))
    mixed = np.clip(levels + hue - hue.mean(-1, keepdims=True), 0.0, 1.0).astype(np.float32)
    return mixed[0][:, :, None, None], mixed[1][:, :, None, None]


def blend(cover: np.ndarray, over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """`over` where cover (n, H, W) is 1, `under` where it is 0: (n, 3, H, W)."""
    return under + cover[:, None] * (over - under)


def pattern(generator: np.random.Generator, n: int, size: int) -> np.ndarray:
    """(n, size, size) float32 in [-1, 1]: a sinusoid at any angle or a checker, wavelengths 0.35 to 0.8."""
    angle, phase_x, phase_y = generator.uniform(0.0, 2 * np.pi, (3, n, 1))
    wave = 2 * np.pi / generator.uniform(0.35, 0.8, (n, 1))
    checker = generator.random((n, 1)) < 0.5
    a = wave * np.where(checker, 1.0, np.cos(angle)) * axis(size) + phase_x
    b = wave * np.where(checker, 1.0, np.sin(angle)) * axis(size) + phase_y
    sin_a, cos_a = (f(a).astype(np.float32)[:, None, :] for f in (np.sin, np.cos))
    sin_b, cos_b = (f(b).astype(np.float32)[:, :, None] for f in (np.sin, np.cos))
    squares = np.sign(sin_a) * np.sign(sin_b)
    return np.where(checker[:, :, None], squares, sin_a * cos_b + cos_a * sin_b)


def _solid(field: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Wide strokes in one plain colour on another."""
    n = len(field)
    cover = ink(field, uniform(generator, 0.10, 0.16, n))
    return blend(cover, *colours(generator, n, (0.6, 1.0), tint=0.35))


def _outline(field: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Only the contour of the strokes: a line on both sides of each, none in between."""
    n = len(field)
    contour = np.abs(field - uniform(generator, 0.13, 0.18, n))
    cover = ink(contour, uniform(generator, 0.03, 0.05, n))
    return blend(cover, *colours(generator, n, (0.6, 1.0), tint=0.35))


def _texture(field: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Sinusoid or checker background of amplitude 0.22 to 0.38, and textured ink."""
    n, size = len(field), field.shape[-1]
    over, under = colours(generator, n, (0.5, 0.8), tint=0.35)
    paper = under + (uniform(generator, 0.22, 0.38, n) * pattern(generator, n, size))[:, None]
    pen = over + (uniform(generator, 0.08, 0.2, n) * pattern(generator, n, size))[:, None]
    return blend(ink(field, uniform(generator, 0.10, 0.16, n)), pen, paper)


def _dim(field: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A contrast of 0.18 to 0.35 in the dark, under light that falls off across the image."""
    n, size = len(field), field.shape[-1]
    over, under = colours(generator, n, (0.18, 0.35), tint=0.08)
    darker = np.minimum(over, under).min(1, keepdims=True) - uniform(generator, 0.05, 0.2, n, 1, 1, 1)
    flat = blend(ink(field, uniform(generator, 0.09, 0.14, n)), over, under) - darker
    angle = generator.uniform(0.0, 2 * np.pi, (n, 1))
    fall = generator.uniform(0.2, 0.45, (n, 1)) / SPAN
    light_x = (fall * np.cos(angle) * axis(size)).astype(np.float32)[:, None, None, :]
    light_y = (fall * np.sin(angle) * axis(size)).astype(np.float32)[:, None, :, None]
    return flat * (np.float32(1.0) + light_x + light_y)


def _clutter(field: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Three stray strokes of other colours under the glyph, and noise of 0.06 to 0.12 over everything."""
    n, size = len(field), field.shape[-1]
    over, under = colours(generator, n, (0.55, 0.95), tint=0.35)
    image = np.broadcast_to(under, (n, 3, size, size))
    for _ in range(3):
        scrap = draw_glyphs(generator.integers(0, NUM_STROKES, (n, 1)), generator)
        scrap = 0.65 * scrap + generator.uniform(-0.8, 0.8, (n, 1, 1, 2))
        colour = under + uniform(generator, 0.5, 1.0, n, 3, 1, 1) * (over - under)
        image = blend(ink(distance(scrap, size), uniform(generator, 0.08, 0.13, n)), colour, image)
    image = blend(ink(field, uniform(generator, 0.10, 0.15, n)), over, image)
    noise = generator.standard_normal(image.shape, dtype=np.float32)
    return image + uniform(generator, 0.06, 0.12, n, 1, 1, 1) * noise


def _sketch(field: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A thin dark line of uneven pressure on white paper."""
    n, size = len(field), field.shape[-1]
    pressure = np.float32(1.0) + np.float32(0.3) * pattern(generator, n, size)
    cover = ink(field, uniform(generator, 0.03, 0.055, n) * pressure) * uniform(generator, 0.75, 1.0, n)
    return blend(cover, uniform(generator, 0.0, 0.3, n, 3, 1, 1), uniform(generator, 0.92, 1.0, n, 1, 1, 1))


_BRUSHES = dict(zip(STYLES, (_solid, _outline, _texture, _dim, _clutter, _sketch), strict=True))


# Lines of other small pictures: the thinned scans of `digits`, the edges of garments in `fashion_mnist`. The brushes
# paint a distance field, whatever it is the distance to.
FINE = 64  # side of the grid on which lines are thinned
REACH = 1.15  # half the width of a scan in the units of SPAN


def hands(target: np.ndarray, players: int, generator: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
    """(player, positions in target (n,)): each class shuffled and dealt evenly, so that every image is used once."""
    for label in np.unique(target):
        dealt = np.array_split(generator.permutation(np.flatnonzero(target == label)), players)
        # Hands differ by one image: the permutation keeps the first players from getting all the larger ones.
        yield from zip(generator.permutation(players).tolist(), dealt, strict=True)


def paint_styles(
    x: np.ndarray,
    domain: np.ndarray,
    fields: Callable[[np.ndarray], np.ndarray],
    generator_of: Callable[[str], np.random.Generator],
) -> None:
    """Fill x (n, 3, H, H) uint8: image i in the style that is number domain[i] (n,) of `STYLES`.

    Args:
        fields: the distance fields (m, H, H) of positions (m,), asked for few at a time.
        generator_of: a style's draws.
    """
    for i, style in enumerate(STYLES):
        generator, mine = generator_of(style), np.flatnonzero(domain == i)
        for part in np.split(mine, range(CHUNK, len(mine), CHUNK)):
            x[part] = paint(fields(part), style, generator)


def enlarge(scans: np.ndarray, order: int = 3) -> np.ndarray:
    """(n, FINE, FINE) grey levels of scans (n, H, H), by splines of that order, in the middle of the canvas."""
    from scipy.ndimage import map_coordinates

    side = scans.shape[-1]
    where = axis(FINE).astype(np.float64) / REACH * side / 2 + (side - 1) / 2
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
    """(n, size, size) float32 distance to the lines (n, FINE, FINE) bool, in the units of SPAN."""
    from scipy.ndimage import distance_transform_edt, map_coordinates

    where = (axis(size).astype(np.float64) + SPAN) * FINE / (2 * SPAN) - 0.5
    grid = np.meshgrid(where, where, indexing="ij")
    unit = 2 * SPAN / FINE
    fields = (distance_transform_edt(~line, sampling=unit) for line in lines)
    sampled = [map_coordinates(field, grid, order=1, mode="nearest") for field in fields]
    return np.stack(sampled, dtype=np.float32)
