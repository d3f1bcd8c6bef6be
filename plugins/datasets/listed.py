"""Data sets whose images are named by lists or tables: DomainNet, NICO++, and one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, root_of
from fedbench.data.decode import Interpolation, OnUnreadable, Resize, Root, Sample, check_options, image_dataset
from fedbench.data.lists import ListConsistency, Lists, listed_images
from fedbench.data.splitting import chosen_for_test, groups_by_name, notes_on_groups, tests_by_group
from fedbench.data.texts import Example
from fedbench.errors import UserError
from fedbench.options import Count, Length, Natural, PathText, Range, Text, judged
from fedbench.types import Dataset

from .image_folder import GroupPattern
from .image_table import make as image_table

PATTERN = "a list's name, or a pattern of names"

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


# Data set `image_lists`: lists of one's own


Patterns = Annotated[str, Text(PATTERN)] | Annotated[list[Annotated[str, Text(PATTERN)]], Length(1, distinct=True)]


@judged("image_lists")
def image_lists(
    image_size: int,
    root: Root,
    train: Patterns = "*.txt",
    test: Patterns | None = None,
    images: Annotated[str, PathText("a folder")] | None = None,
    test_fraction: Annotated[float, Range(above=0, below=1)] = 0.2,
    unreadable: OnUnreadable = "fail",
    split_seed: Natural = 0,
    interpolation: Interpolation = "bicubic",
    resize: Resize = "antialiased",
    group: GroupPattern | None = None,
) -> Dataset:
    """Your own images as lists name them, a path and a label a line, as those of PACS and Office-Home do.

    Paths end in <domain>/<class>/<file>, and the label is a whole number, the same for a class in all lists.

    Args:
        root: the folder with the lists.
        train, test: which lists, such as `*_train_kfold.txt`, or several. Without `test`, test_fraction of each class
            and domain is drawn by split_seed.
        images: the folder that holds <domain>/<class>/<file>, relative to root; root itself if not given.
        unreadable: `fail` or `skip`.
        interpolation: how to resize.
        resize: `antialiased`, to uint8, upright by EXIF; or `reference`, as FedRA's released code does: floats without
            antialiasing and clamping, EXIF ignored, four times the cache.
        group: as of `image_folder`.

    Raises: UserError with file and line for a line of another form, and an image that is not there or is listed twice.
    """
    folder = root_of("image_lists", root)
    check_options(image_size, interpolation, unreadable, resize)
    place, said = folder / (images or ""), ListConsistency()
    halves = [
        [image for file in _files(folder, given) for image in listed_images(place, file, said)]
        for given in (train, test or [])
    ]
    found = [*halves[0], *halves[1]]
    domains, labels = sorted({image.domain for image in found}), sorted({image.label for image in found})
    samples = [Sample(one.path, labels.index(one.label), domains.index(one.domain)) for one in found]
    tests = {image.path for image in halves[1]}
    groups = groups_by_name(group, [sample.path for sample in samples]) if group else None
    if test is None and groups:
        tests = tests_by_group("image_lists", samples, groups, test_fraction, split_seed)
    elif test is None:
        drawn = chosen_for_test([Example(*one) for one in samples], test_fraction, split_seed, "image_lists")
        tests = {sample.path for sample, flag in zip(samples, drawn, strict=True) if flag}
    of_train, of_test = ([one for one in samples if (one.path in tests) is wanted] for wanted in (False, True))
    if not of_train or not of_test:
        raise UserError(f"image_lists: {folder} has {len(found):,} images, {len(tests):,} for testing; both are needed")
    notes = notes_on_groups(groups, tests) if groups else []
    names = [said.name_of(label) for label in labels]
    how = image_size, interpolation, unreadable, resize
    return image_dataset(place, domains, names, of_train, of_test, *how, notes=notes, groups=groups)


def _files(folder: Path, given: str | list[str]) -> list[Path]:
    """The lists of some patterns, sorted. Raises: UserError for a pattern that finds none."""
    found: dict[Path, None] = {}
    for pattern in [given] if isinstance(given, str) else given:
        try:
            files = sorted(file for file in folder.glob(pattern) if file.is_file())
        except (ValueError, NotImplementedError) as error:
            raise UserError(f"image_lists: {pattern!r} is no pattern of names below {folder}: {error}") from error
        if not files:
            raise UserError(f"image_lists: {folder} has no list {pattern!r}")
        found |= dict.fromkeys(files)
    return list(found)


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
    register("image_lists", image_lists, profiles={"reference": {"resize": "reference"}})
    register("image_table", image_table, profiles={"reference": {"resize": "reference"}})
