"""Data sets whose images are named by lists: lines `.../<domain>/<class>/<file> <label>`, a list for each split."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedbench.data.decode import Sample, image_dataset
from fedbench.data.image_files import UnreadableFile, as_on_disk, content
from fedbench.errors import UserError
from fedbench.types import Dataset
from fedbench.words import counted

LINE = re.compile(r"(\S.*?)[ \t]+([0-9]{1,9})[ \t]*")


class Listed(NamedTuple):
    """One line of a list: its number from 1, the path it names and the label, which stands last."""

    number: int
    path: str
    label: int


def read_list(file: Path) -> list[Listed]:
    """The lines of a list but the empty ones; a path may hold spaces.

    Raises: UserError with file and line where a line is no path with a whole number after it, or the list is empty.
    """
    try:
        text = content(file.parent, file.name).decode("utf-8-sig", "surrogateescape")
    except UnreadableFile as error:
        raise UserError(f"cannot read {file}: {error.why}") from error
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        parts = LINE.fullmatch(line)
        if not parts:
            raise UserError(f"{file}:{number}: expected a path and, last, a label such as 0, not {line[:100]!r}")
        found.append(Listed(number, parts[1], int(parts[2])))
    if not found:
        raise UserError(f"{file} names no images")
    return found


class ListPlace(NamedTuple):
    """A line of a list."""

    file: Path
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class ListConsistency:
    """What the lines have said, and where first: an image is listed once, a class has one folder and one label."""

    def __init__(self) -> None:
        self._images: dict[str, ListPlace] = {}
        self._names: dict[int, tuple[str, ListPlace]] = {}
        self._labels: dict[str, tuple[int, ListPlace]] = {}

    def name_of(self, label: int) -> str:
        """The folder of a class, or `class 3` where no line has that label."""
        return self._names[label][0] if label in self._names else f"class {label}"

    def add(self, here: ListPlace, path: str, label: int) -> None:
        """Take in that the image <domain>/<class>/<file> has this label. Raises: UserError naming both places."""
        there = self._images.setdefault(path, here)
        if there is not here:
            raise UserError(f"{here}: {path} is listed already, at {there}; an image is in one split, once")
        name = path.split("/")[1]
        known_name, there = self._names.setdefault(label, (name, here))
        if known_name != name:
            raise UserError(f"{here}: label {label} is {name!r} here and {known_name!r} at {there}")
        known_label, there = self._labels.setdefault(name, (label, here))
        if known_label != label:
            raise UserError(f"{here}: {name!r} has the label {label} here and {known_label} at {there}")


class ListedImage(NamedTuple):
    """An image that a list names: where, its path on disk below the folder of images, its label and its domain."""

    place: ListPlace
    path: str
    label: int
    domain: str


def listed_images(
    images: Path, file: Path, said: ListConsistency, domain: str | None = None, lines: Sequence[Listed] | None = None
) -> list[ListedImage]:
    """The images that a list names, whose paths end in <domain>/<class>/<file>.

    Args:
        images: The folder that holds <domain>/<class>/<file>.
        file: The list.
        said: What other lists have said. It is added to.
        domain: The only domain that the list may have; None: any.
        lines: Those to take; None: all.

    Raises:
        UserError: With file and line for a path of another form, an image that is listed twice, a label of two folders,
            a folder of two labels, and an image that is not there.
    """
    lines = read_list(file) if lines is None else lines
    paths = [_below(file, line, domain) for line in lines]
    places = [ListPlace(file, line.number) for line in lines]
    for place, line, path in zip(places, lines, paths, strict=True):
        said.add(place, path, line.label)
    there = as_on_disk(images, paths, lambda i: str(places[i]), "list")
    return [
        ListedImage(place, on_disk, line.label, path.split("/")[0])
        for place, on_disk, line, path in zip(places, there, lines, paths, strict=True)
    ]


@dataclass(frozen=True)
class Lists:
    """The lists of a data set.

    Attributes:
        images: the folder that holds <domain>/<class>/<file>.
        files: {domain: (training list, test list)}.
        classes: how many, labelled from 0.
        leave_out: whether larger labels are passed over, or an error.
    """

    images: Path
    files: Mapping[str, tuple[Path, Path]]
    classes: int
    leave_out: bool = False

    def dataset(self, image_size: int, interpolation: str, unreadable: str, resize: str = "antialiased") -> Dataset:
        """The listed images, a class called as the folder its images lie in.

        Raises: UserError with file and line for a path of another form, an image that is listed twice, a label that
        does not exist or stands for two folders, a folder of two labels, and an image that is not there; for a domain
        without images of the classes.
        """
        if self.classes < 2:
            raise UserError(f"classes must be at least 2, not {self.classes}")
        said = ListConsistency()
        train, test = (self._split(split, said) for split in (0, 1))
        classes = [said.name_of(label) for label in range(self.classes)]
        options = image_size, interpolation, unreadable, resize
        return image_dataset(self.images, list(self.files), classes, train, test, *options)

    def _split(self, split: int, said: ListConsistency) -> list[Sample]:
        samples = []
        for index, (domain, files) in enumerate(self.files.items()):
            file = files[split]
            lines = [line for line in read_list(file) if self._wanted(file, line)]
            if not lines:
                raise UserError(f"{file} names no image of the first {self.classes} classes")
            samples += [
                Sample(image.path, image.label, index)
                for image in listed_images(self.images, file, said, domain, lines)
            ]
        return samples

    def _wanted(self, file: Path, line: Listed) -> bool:
        if line.label < self.classes:
            return True
        if self.leave_out:
            return False
        raise UserError(
            f"{file}:{line.number}: label {line.label}, but the labels of {counted(self.classes, 'class')} begin with 0"
        )


def _below(file: Path, line: Listed, domain: str | None) -> str:
    """The path from the domain's folder on; whatever stands before it is the list maker's own."""
    parts = line.path.split("/")
    wrong = len(parts) < 3 or domain not in (None, parts[-3])
    if wrong or {"", ".", ".."} & set(parts[-2:] if domain else parts[-3:]):
        raise UserError(f"{file}:{line.number}: expected {domain or '<domain>'}/<class>/<file>, not {line.path!r}")
    return "/".join(parts[-3:])
