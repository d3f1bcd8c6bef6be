"""Data: where pixels come from and where they are kept once decoded. Nothing in this package imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedbench.data.cache import NewArray, cached
from fedbench.data.sources import Part, Source, data_dir, root_of
from fedbench.disk import cache_dir

if TYPE_CHECKING:
    from fedbench.registry.registry import Registry
    from fedbench.types import Dataset

__all__ = ["NewArray", "Part", "Source", "cache_dir", "cached", "data_dir", "dataset_of", "dataset_ref", "root_of"]

# What stands in a configuration's `data` section beside the options of the data set itself.
BESIDE = ("partition", "normalize", "image_size")


def dataset_ref(data: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration's `data` section that makes the data set: its name and its own options."""
    return {key: value for key, value in data.items() if key not in BESIDE}


def dataset_of(data: Mapping[str, Any], registry: Registry, image_size: int) -> Dataset:
    """The data set of a configuration's `data` section, at its own image size or else the given one."""
    return registry.make("dataset", dataset_ref(data), image_size=data.get("image_size") or image_size)
