"""Data sets with official lists of their images: DomainNet and NICO++."""

from __future__ import annotations

from collections.abc import Callable

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, root_of
from fedbench.data.decode import Interpolation, OnUnreadable, Resize, Root
from fedbench.data.lists import Lists
from fedbench.options import Count, judged
from fedbench.types import Dataset

# Data set `domainnet`: six styles of the same objects, in the official layout (Peng et al., ICCV 2019)


# domain: size of its archive, lines of its training and of its test list ("cleaned version" of the official page)
DOMAINNET_DOMAINS = {
    "clipart": ("1.3 GB", 33_525, 14_604),
    "infograph": ("4.0 GB", 36_023, 15_582),
    "painting": ("3.7 GB", 50_416, 21_850),
    "quickdraw": ("439 MB", 120_750, 51_750),
    "real": ("5.6 GB", 120_906, 52_041),
    "sketch": ("2.5 GB", 48_212, 20_916),
}


def _domainnet_list(domain: str, split: str, lines: int | None = None) -> DataPart:
    name = f"{domain}_{split}.txt"
    return DataPart((f"splits/{name}", name), lines=lines)


DOMAINNET_SOURCE = DataSource(
    page="http://ai.bu.edu/M3SDA/",
    parts=(
        *(DataPart((domain,), f"{domain}.zip", size=size) for domain, (size, _, _) in DOMAINNET_DOMAINS.items()),
        *(
            _domainnet_list(domain, split, lines)
            for domain, (_, *numbers) in DOMAINNET_DOMAINS.items()
            for split, lines in zip(("train", "test"), numbers, strict=True)
        ),
    ),
    licence="non-commercial research and education; holds copyrighted material, see the official page",
)


@judged("domainnet")
def domainnet(
    image_size: int,
    root: Root | None = None,
    classes: Count = 100,
    unreadable: OnUnreadable = "fail",
    interpolation: Interpolation = "bicubic",
    resize: Resize = "antialiased",
) -> Dataset:
    """DomainNet: clipart, infograph, painting, quickdraw, real, sketch; the first 100 of 345 classes.

    Args:
        root: the folder with <domain>/<class>/<file> and splits/<domain>_{train,test}.txt, `domainnet` in the folder of
            data sets if not given.
        classes: images with a label from this number on are left out.
        unreadable: `fail` or `skip`.
        interpolation: how to resize.
        resize: `antialiased`, to uint8, upright by EXIF; or `reference`, as FedRA's released code does: floats without
            antialiasing and clamping, EXIF ignored, four times the cache.
    """
    folder = root_of("domainnet", root)
    DOMAINNET_SOURCE.require("domainnet", folder)
    files = {
        domain: (_domainnet_list(domain, "train").at(folder), _domainnet_list(domain, "test").at(folder))
        for domain in DOMAINNET_DOMAINS
    }
    return Lists(folder, files, classes, leave_out=True).dataset(image_size, interpolation, unreadable, resize)


# Data set `nicopp`: 60 classes in six common contexts, in the official layout (Zhang et al., CVPR 2023)


NICOPP_DOMAINS = ("autumn", "dim", "grass", "outdoor", "rock", "water")
IMAGES, LISTS = "NICO_DG", "NICO_DG_official"


def _images(domain: str) -> DataPart:
    return DataPart((f"{IMAGES}/{domain}", domain), f"{IMAGES}.zip")


def _nicopp_list(domain: str, split: str) -> DataPart:
    name = f"{domain}_{split}.txt"
    return DataPart((f"{LISTS}/{name}", name, f"../{LISTS}/{name}"), f"{LISTS}.zip")


NICOPP_SOURCE = DataSource(
    page="https://nicochallenge.com/dataset",
    parts=(
        *(_images(domain) for domain in NICOPP_DOMAINS),
        *(_nicopp_list(domain, split) for domain in NICOPP_DOMAINS for split in ("train", "test")),
    ),
)


@judged("nicopp")
def nicopp(
    image_size: int,
    root: Root | None = None,
    unreadable: OnUnreadable = "fail",
    interpolation: Interpolation = "bicubic",
    resize: Resize = "antialiased",
) -> Dataset:
    """NICO++: autumn, dim, grass, outdoor, rock, water; 60 classes.

    Args:
        root: the folder with NICO_DG/<domain>/<class>/<file> and NICO_DG_official/<domain>_{train,test}.txt, `nicopp`
            in the folder of data sets if not given; it may be NICO_DG itself, with the lists in it or next to it.
        unreadable: `fail` or `skip`.
        interpolation: how to resize.
        resize: `antialiased`, to uint8, upright by EXIF; or `reference`, as FedRA's released code does: floats without
            antialiasing and clamping, EXIF ignored, four times the cache.
    """
    folder = root_of("nicopp", root)
    NICOPP_SOURCE.require("nicopp", folder)
    files = {
        domain: (_nicopp_list(domain, "train").at(folder), _nicopp_list(domain, "test").at(folder))
        for domain in NICOPP_DOMAINS
    }
    images = _images(NICOPP_DOMAINS[0]).at(folder).parent
    return Lists(images, files, 60).dataset(image_size, interpolation, unreadable, resize)


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register(
        "domainnet",
        domainnet,
        source=DOMAINNET_SOURCE,
        profiles={"reference": {"resize": "reference"}},
        later=("resize",),
    )
    register("nicopp", nicopp, source=NICOPP_SOURCE, profiles={"reference": {"resize": "reference"}}, later=("resize",))
