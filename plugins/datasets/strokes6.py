"""The data set `strokes6`: glyphs of four strokes in six styles, drawn by fedbench, nothing to download.

The styles play the part of the six domains of NICO++ and DomainNet. The classes are combinations of strokes
that the pre-training of `micro_vit` and `micro_mixer` never drew; the 24 strokes themselves are the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import numpy as np

from fedbench import hookimpl
from fedbench.data import NewArray, cached
from fedbench.errors import UserError
from fedbench.options import Count, Natural, Range, judged
from fedbench.seeding import numpy_generator
from fedbench.types import Dataset, Images, Splits

from . import glyphs

WOBBLE = {"sketch": 0.02}  # how unsteady the hand is; the other styles are drawn with a ruler's calm


@judged("strokes6")
def make(
    image_size: int,
    classes: Annotated[int, Range(2)] = 30,
    train_per_class: Count = 40,
    test_per_class: Count = 10,
    draw: Natural = 0,
) -> Dataset:
    """Stroke glyphs in the domains solid, outline, texture, dim, clutter and sketch.

    Args:
        classes: how many stroke combinations.
        train_per_class, test_per_class: images of a class in each domain.
        draw: another number gives fresh images of the same classes.
    """
    counts = {"image_size": image_size, "train_per_class": train_per_class, "test_per_class": test_per_class}
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"strokes6: {name} must be at least 1, not {value}")
    if not 2 <= classes <= _most_classes():
        raise UserError(f"strokes6: classes must be between 2 and {_most_classes()}, not {classes}")
    strokes = glyphs.class_strokes("downstream", None)[:classes]
    amount = f"{classes}x({train_per_class}+{test_per_class})"
    fingerprint = f"strokes6-renderer{glyphs.RENDERER}-{image_size}px-{amount}-draw{draw}"

    def build(new_array: NewArray) -> Splits:
        return Splits(
            train=_images(strokes, image_size, train_per_class, draw, "train", new_array),
            test=_images(strokes, image_size, test_per_class, draw, "test", new_array),
        )

    def outline() -> Splits:
        labels = [_labels(classes, per_class) for per_class in (train_per_class, test_per_class)]
        train, test = (Images.blank(y, domain, image_size) for y, domain in labels)
        return Splits(train, test)

    names = tuple("-".join(map(str, row)) for row in strokes)
    return Dataset(glyphs.STYLES, names, fingerprint, lambda: cached(fingerprint, build), outline=outline)


@lru_cache(maxsize=1)
def _most_classes() -> int:
    """How many classes exist besides the upstream ones."""
    return len(glyphs.class_strokes("downstream", None))


def _images(strokes: np.ndarray, size: int, per_class: int, draw: int, split: str, new_array: NewArray) -> Images:
    """`per_class` images of each class in each style, by domain, then class; drawn in their place on disk."""
    y, domain = _labels(len(strokes), per_class)
    x = new_array(f"{split}_x", (len(y), 3, size, size))
    for d, style in enumerate(glyphs.STYLES):
        own = slice(*np.searchsorted(domain, (d, d + 1)))
        _draw(x[own], strokes[y[own]], style, numpy_generator(draw, use=f"strokes6 {split} {style}"))
    return Images(x, y, domain)


def _labels(classes: int, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """y and domain, (n,) int64 each: `per_class` of each class in each style, by domain, then class."""
    y, styles = np.repeat(np.arange(classes), per_class), len(glyphs.STYLES)
    return np.tile(y, styles).astype(np.int64), np.repeat(np.arange(styles), len(y)).astype(np.int64)


def _draw(images: np.ndarray, strokes: np.ndarray, style: str, generator: np.random.Generator) -> None:
    """Draw images (n, 3, H, H) uint8, one for each row of stroke numbers (n, 4)."""
    size = images.shape[-1]
    for start in range(0, len(strokes), glyphs.CHUNK):
        part = slice(start, start + glyphs.CHUNK)
        lines = glyphs.draw_glyphs(strokes[part], generator, wobble=WOBBLE.get(style, 0.0))
        images[part] = glyphs.paint(glyphs.distance(lines, size), style, generator)


@hookimpl
def fedbench_register_datasets(register) -> None:
    """Offer `strokes6`."""
    register("strokes6", make)
