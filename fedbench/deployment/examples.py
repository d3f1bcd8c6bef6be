"""The examples of a node: dealt to it cell by cell, or a data set of its own in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbench.deployment import wire
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry.registry import Registry, dataset_of
from fedbench.types import Dataset, Images, Splits, Texts

OF_TEXTS = ("text", "completion", "choices")  # what of texts is strings


class Examples:
    """What is in a node's folder: a file for each cell that was dealt to it, or any data set that takes a `root`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def deal(self, cell: str, own: Images | Texts) -> None:
        """Put the examples there that the node has in a cell."""
        texts = {name: getattr(own, name) for name in OF_TEXTS} if isinstance(own, Texts) else None
        tensors = {"y": torch.from_numpy(own.y), "domain": torch.from_numpy(own.domain)}
        if isinstance(own, Images):
            tensors["x"] = torch.from_numpy(np.ascontiguousarray(own.x))
        write_atomically(self._file(cell), wire.packed({"texts": texts}, tensors))

    def _file(self, cell: str) -> Path:
        return self.folder / f"{cell}.examples"

    def dataset(
        self, cell: str, config: Mapping[str, Any], about: Mapping[str, Any], registry: Registry, image_size: int
    ) -> Dataset:
        """The node's examples as the training split of a data set.

        Raises UserError where they are not of the classes that the server has.
        """
        file = self._file(cell)
        own = _dealt(file) if file.is_file() else self._own(config["data"], about["classes"], registry, image_size)
        if len(own) != about["sizes"][about["client"]]:
            raise UserError(f"{self.folder}: {len(own)} examples, not {about['sizes'][about['client']]} as it was said")
        names = tuple(about["domain_names"]), tuple(about["classes"])
        splits = Splits(own, part_of(own, np.arange(1)))  # nodes test nothing, and one example stands for those tested
        return Dataset(*names, "", lambda: splits, texts=isinstance(own, Texts), task=about["task"])

    def described(self, data: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
        """What the server is told of a data set of the node's own: how many examples it has for training, of which
        domain, their fingerprint, and the names of its classes. data: the `data` section of a configuration."""
        dataset = self._dataset(data, registry, 224)
        train = (dataset.outline or dataset.load)().train
        domains = np.unique(train.domain)
        return {
            "examples": len(train),
            "domain": dataset.domains[int(domains[0])] if len(domains) == 1 else "",
            "fingerprint": dataset.fingerprint,
            "classes": list(dataset.classes),
        }

    def _dataset(self, data: Mapping[str, Any], registry: Registry, image_size: int) -> Dataset:
        if "root" not in data:
            raise UserError(f"the data set {data['name']!r} has no `root`, so that no node can have one of its own")
        return dataset_of({**data, "root": str(self.folder)}, registry, image_size)

    def _own(self, data: Mapping[str, Any], classes: list[str], registry: Registry, image_size: int) -> Images | Texts:
        dataset = self._dataset(data, registry, image_size)
        if unknown := [name for name in dataset.classes if name not in classes]:
            raise UserError(f"{self.folder}: the server knows no class {unknown[0]!r}; it has {', '.join(classes)}")
        train = dataset.load().train
        as_server = np.array([classes.index(name) for name in dataset.classes], dtype=np.int64)
        return replace(train, y=as_server[train.y], domain=np.full(len(train), 0, dtype=np.int64))


def _dealt(file: Path) -> Images | Texts:
    facts, tensors = wire.unpacked(file.read_bytes())
    y, domain = tensors["y"].numpy(), tensors["domain"].numpy()
    if facts["texts"] is None:
        return Images(tensors["x"].numpy(), y, domain)
    texts: dict[str, Any] = {name: _strings(values) for name, values in facts["texts"].items()}
    return Texts(y=y, domain=domain, **texts)


def _strings(values: list[Any] | None) -> list[Any] | None:
    """Strings, or pairs or lists of them, as they were before they were JSON."""
    return values and [value if isinstance(value, str) else tuple(value) for value in values]


def part_of(train: Images | Texts, indices: np.ndarray) -> Images | Texts:
    """The examples at these positions."""
    if isinstance(train, Texts):
        return train.at(indices)
    return Images(train.x[indices], train.y[indices], train.domain[indices])
