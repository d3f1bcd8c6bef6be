"""Data set `nicopp`: 60 classes in six common contexts, in the official layout (Zhang et al., CVPR 2023)."""

from __future__ import annotations

from collections.abc import Callable

from fedbench import hookimpl
from fedbench.data import Part, Source, root_of
from fedbench.data.lists import Lists
from fedbench.data.options import Interpolation, OnUnreadable, Resize, Root
from fedbench.options import judged
from fedbench.types import Dataset

DOMAINS = ("autumn", "dim", "grass", "outdoor", "rock", "water")
IMAGES, LISTS = "NICO_DG", "NICO_DG_official"


def _images(domain: str) -> Part:
    return Part((f"{IMAGES}/{domain}", domain), f"{IMAGES}.zip")


def _list(domain: str, split: str) -> Part:
    name = f"{domain}_{split}.txt"
    return Part((f"{LISTS}/{name}", name, f"../{LISTS}/{name}"), f"{LISTS}.zip")


SOURCE = Source(
    page="https://nicochallenge.com/dataset",
    parts=(
        *(_images(domain) for domain in DOMAINS),
        *(_list(domain, split) for domain in DOMAINS for split in ("train", "test")),
    ),
)


@judged("nicopp")
def make(
    image_size: int,
    root: Root | None = None,
    unreadable: OnUnreadable = "fail",
    interpolation: Interpolation = "bicubic",
    resize: Resize = "antialiased",
) -> Dataset:
    """NICO++: autumn, dim, grass, outdoor, rock, water; 60 classes.

    root: the folder with NICO_DG/<domain>/<class>/<file> and NICO_DG_official/<domain>_{train,test}.txt, `nicopp` in
    the folder of data sets if not given; it may be NICO_DG itself, with the lists in it or beside it · unreadable:
    `fail` or `skip` · interpolation: how to resize · resize: `antialiased`, to uint8, upright by EXIF; or `reference`,
    as FedRA's released code does: floats without antialiasing and clamping, EXIF ignored, four times the cache.
    """
    folder = root_of("nicopp", root)
    SOURCE.require("nicopp", folder)
    files = {domain: (_list(domain, "train").at(folder), _list(domain, "test").at(folder)) for domain in DOMAINS}
    images = _images(DOMAINS[0]).at(folder).parent
    return Lists(images, files, 60).dataset(image_size, interpolation, unreadable, resize)


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("nicopp", make, source=SOURCE, profiles={"reference": {"resize": "reference"}}, later=("resize",))
