"""Which cells have their method in common, as far as its price goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from fedbench.types import SIZES

Config = Mapping[str, Any]
Cell = TypeVar("Cell")
OF_CELLS = (
    "seed",
    *SIZES,
    "devices",
    "fit",
    "participation",
    "faults",
)  # what a method may be told of a cell, or need not know


def of_one_method(config: Config) -> str:
    """Equal for cells that one method may serve."""
    parts = {key: value for key, value in config.items() if key not in OF_CELLS}
    parts["data"] = {key: value for key, value in config["data"].items() if key != "partition"}
    return json.dumps(parts, sort_keys=True)


def alike_together(cells: Iterable[Cell], config: Callable[[Cell], Config]) -> Iterator[Cell]:
    """Cells in an order in which what they have in common need not be kept for long: those of a method together, in the
    order in which the first of each comes."""
    return in_groups(cells, lambda cell: of_one_method(config(cell)))


def in_groups(cells: Iterable[Cell], key: Callable[[Cell], str]) -> Iterator[Cell]:
    """Cells of one key together, in the order in which the first of each comes."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    for group in groups.values():
        yield from group
