"""A plugin of checks: a data set whose test examples stand there once with each label.

The answers of a method that knows an example and not its label are right for one of its copies. Copies of an image
differ by one step of one pixel, so that labels can be looked up, and answers by what is seen do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedbench import hookimpl
from fedbench.registry.registry import Registry
from fedbench.types import Dataset, Images, Splits, Texts

MOST = 2_000  # test examples with their copies, about


def make(of: Mapping[str, Any], image_size: int | None = None) -> Dataset:
    """Another data set with some of its test examples, each as often as there are classes, with each label once.

    Args:
        of: the other data set, by its name with its options.
    """
    whole: Dataset = Registry(in_place=True).make("dataset", of, image_size=image_size)
    classes = len(whole.classes)

    def load() -> Splits:
        splits = whole.load()
        return replace(splits, test=_with_every_label(splits.test, classes, len(whole.domains)))

    return replace(whole, fingerprint=f"{whole.fingerprint}-every-label-of-{classes}", load=load, outline=None)


def _with_every_label(test: Images | Texts, classes: int, domains: int) -> Images | Texts:
    each = max(1, MOST // (classes * domains))
    own = [np.flatnonzero(test.domain == d) for d in range(domains)]
    some = np.concatenate([positions[:: max(1, len(positions) // each)][:each] for positions in own])
    rows, labels = np.repeat(some, classes), np.tile(np.arange(classes, dtype=test.y.dtype), len(some))
    if isinstance(test, Texts):
        return replace(test.at(rows), y=labels)
    x = np.asarray(test.x)[rows]
    flat, copies = x.reshape(len(x), -1), np.arange(len(rows))
    flat[copies, labels] += (
        np.where(flat[copies, labels] > 0, -1, 1).astype(np.int8).astype(x.dtype) if x.dtype == np.uint8 else 1e-3
    )
    return Images(x, labels, test.domain[rows])


@hookimpl
def fedbench_register_datasets(register) -> None:
    """Offer `every_label`."""
    register("every_label", make)
