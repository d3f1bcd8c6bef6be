"""Data set `domainnet`: six styles of the same objects, in the official layout (Peng et al., ICCV 2019)."""

from __future__ import annotations

from collections.abc import Callable

from fedbench import hookimpl
from fedbench.data import Part, Source, root_of
from fedbench.data.lists import Lists
from fedbench.data.options import Interpolation, OnUnreadable, Resize, Root
from fedbench.options import Count, judged
from fedbench.types import Dataset

# domain: size of its archive, lines of its training and of its test list ("cleaned version" of the official page)
DOMAINS = {
    "clipart": ("1.3 GB", 33_525, 14_604),
    "infograph": ("4.0 GB", 36_023, 15_582),
    "painting": ("3.7 GB", 50_416, 21_850),
    "quickdraw": ("439 MB", 120_750, 51_750),
    "real": ("5.6 GB", 120_906, 52_041),
    "sketch": ("2.5 GB", 48_212, 20_916),
}


def _list(domain: str, split: str, lines: int | None = None) -> Part:
    name = f"{domain}_{split}.txt"
    return Part((f"splits/{name}", name), lines=lines)


SOURCE = Source(
    page="http://ai.bu.edu/M3SDA/",
    parts=(
        *(Part((domain,), f"{domain}.zip", size=size) for domain, (size, _, _) in DOMAINS.items()),
        *(
            _list(domain, split, lines)
            for domain, (_, *numbers) in DOMAINS.items()
            for split, lines in zip(("train", "test"), numbers, strict=True)
        ),
    ),
    licence="non-commercial research and education; holds copyrighted material, see the official page",
)


@judged("domainnet")
def make(
    image_size: int,
    root: Root | None = None,
    classes: Count = 100,
    unreadable: OnUnreadable = "fail",
    interpolation: Interpolation = "bicubic",
    resize: Resize = "antialiased",
) -> Dataset:
    """DomainNet: clipart, infograph, painting, quickdraw, real, sketch; the first 100 of 345 classes.

    root: the folder with <domain>/<class>/<file> and splits/<domain>_{train,test}.txt, `domainnet` in the folder of
    data sets if not given · classes: images with a label from this number on are left out · unreadable: `fail` or
    `skip` · interpolation: how to resize · resize: `antialiased`, to uint8, upright by EXIF; or `reference`, as FedRA's
    released code does: floats without antialiasing and clamping, EXIF ignored, four times the cache.
    """
    folder = root_of("domainnet", root)
    SOURCE.require("domainnet", folder)
    files = {domain: (_list(domain, "train").at(folder), _list(domain, "test").at(folder)) for domain in DOMAINS}
    return Lists(folder, files, classes, leave_out=True).dataset(image_size, interpolation, unreadable, resize)


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("domainnet", make, source=SOURCE, profiles={"reference": {"resize": "reference"}}, later=("resize",))
