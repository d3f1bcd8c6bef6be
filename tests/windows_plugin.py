"""A plugin for benchmarks: images by the million that take a byte each, all of them windows into the same noise."""

from __future__ import annotations

import numpy as np

from fedbench import hookimpl
from fedbench.options import Count, judged
from fedbench.types import Dataset, Images, Splits

CLASSES, SIDE = 30, 32


@judged("windows")
def make(image_size: int, examples: Count = 1000) -> Dataset:
    """examples: training images, all of one domain; each begins a byte after the one before."""

    def images(n: int) -> Images:
        draw = np.random.default_rng(n)
        noise = draw.integers(256, size=n + 3 * SIDE * SIDE, dtype=np.uint8)
        x = np.lib.stride_tricks.as_strided(noise, (n, 3, SIDE, SIDE), (1, SIDE * SIDE, SIDE, 1), writeable=False)
        return Images(x, draw.integers(CLASSES, size=n), np.zeros(n, dtype=np.int64))

    def load() -> Splits:
        return Splits(images(examples), images(10 * CLASSES))

    return Dataset(("noise",), tuple(map(str, range(CLASSES))), f"windows-{examples}", load)


@hookimpl
def fedbench_register_datasets(register) -> None:
    register("windows", make)
