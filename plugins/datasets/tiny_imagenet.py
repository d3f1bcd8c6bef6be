"""Data set `tiny_imagenet`: 200 classes of ImageNet at 64 x 64 pixels, in the official layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, root_of
from fedbench.data.decode import Interpolation, OnUnreadable, Root, Sample, image_dataset
from fedbench.data.image_files import UnreadableFile, content
from fedbench.errors import UserError
from fedbench.options import judged
from fedbench.types import Dataset

WNIDS = DataPart(("tiny-imagenet-200/wnids.txt", "wnids.txt"), "tiny-imagenet-200.zip", size="237 MB")
SOURCE = DataSource(
    page="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    parts=(WNIDS,),
    licence="ImageNet's terms: non-commercial research and education",
    counts={"all": (100_000, 10_000)},
)


@judged("tiny_imagenet")
def make(
    image_size: int,
    root: Root | None = None,
    unreadable: OnUnreadable = "fail",
    interpolation: Interpolation = "bicubic",
) -> Dataset:
    """Tiny ImageNet: 200 classes, one domain; its validation images are the test split.

    The official test images have no labels and are not read.

    Args:
        root: the folder with tiny-imagenet-200/, or that folder itself; `tiny_imagenet` in the folder of data sets if
            not given.
        unreadable: `fail` or `skip`.
        interpolation: how to resize.
    """
    folder = root_of("tiny_imagenet", root)
    SOURCE.require("tiny_imagenet", folder)
    base = WNIDS.at(folder).parent
    classes = [line for line in _lines(base / "wnids.txt") if line]
    label = {wnid: number for number, wnid in enumerate(classes)}
    if len(label) < max(len(classes), 2):
        raise UserError(f"{base / 'wnids.txt'} must name two or more different classes")
    train = [Sample(path, number, 0) for wnid, number in label.items() for path in _training(base, wnid)]
    test = _validation(base, label)
    return image_dataset(base, ["all"], classes, train, test, image_size, interpolation, unreadable)


def _training(base: Path, wnid: str) -> list[str]:
    images = base / "train" / wnid / "images"
    found = sorted(images.glob("*.JPEG")) if images.is_dir() else []
    if not found:
        raise UserError(f"{images} holds no images (*.JPEG), but wnids.txt names the class")
    return [image.relative_to(base).as_posix() for image in found]


def _validation(base: Path, label: dict[str, int]) -> list[Sample]:
    """The lines `file, wnid, x, y, width, height` of val_annotations.txt, separated by tabs."""
    file = base / "val" / "val_annotations.txt"
    samples = []
    for number, line in enumerate(_lines(file), 1):
        if not line:
            continue
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in label or "/" in name:
            raise UserError(f"{file}:{number}: expected a file, a tab and a class of wnids.txt, not {line[:100]!r}")
        samples.append(Sample(f"val/images/{name}", label[wnid], 0))
    if not samples:
        raise UserError(f"{file} names no images")
    return samples


def _lines(file: Path) -> list[str]:
    try:
        text = content(file.parent, file.name).decode("utf-8-sig", "surrogateescape")
    except UnreadableFile as error:
        raise UserError(f"cannot read {file}: {error.why}") from error
    return [line.rstrip("\r") for line in text.split("\n")]


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("tiny_imagenet", make, source=SOURCE)
