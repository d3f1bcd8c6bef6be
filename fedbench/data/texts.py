"""Texts with their classes and domains, and the data set that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from fedbench.data.names import codes
from fedbench.disk import hash_of_json
from fedbench.types import Dataset, Splits, Texts

TEXTS_VERSION = 1  # part of every fingerprint: raise it whenever the same files give other texts

Text = str | tuple[str, str]


class Example(NamedTuple):
    """A text or a pair of texts, its class and its domain."""

    text: Text
    label: int
    domain: int


def text_dataset(
    domains: Sequence[str],
    classes: Sequence[str],
    train: Sequence[Example],
    test: Sequence[Example],
    notes: Sequence[str] = (),
    groups: Sequence[str] | None = None,
) -> Dataset:
    """The data set of these texts; its fingerprint covers each text, label, domain and split, and all names.

    groups: of the training texts, where some belong together.
    """
    fingerprint = hash_of_json([TEXTS_VERSION, domains, classes, train, test, *([groups] if groups else [])])
    of_train = _texts(train)
    splits = Splits(replace(of_train, group=codes(groups)) if groups else of_train, _texts(test))
    return Dataset(tuple(domains), tuple(classes), fingerprint, lambda: splits, notes=tuple(notes), texts=True)


def _texts(examples: Sequence[Example]) -> Texts:
    import numpy as np

    y, domain = (np.array([one[part] for one in examples], dtype=np.int64) for part in (1, 2))
    return Texts(cast("Sequence[str]", [one.text for one in examples]), y, domain)
