"""Data of one's own: what lies in a folder of images or in tables, and how it is dealt to clients."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.checked import doubts, fault_of_data, loaded, refusal
from fedbench.data.decode import unreadable_message
from fedbench.data.image_files import SUFFIXES, TABLES
from fedbench.data.labelled import OPTIONAL
from fedbench.data.names import is_passed_over
from fedbench.data.tables import FORMATS, columns_of, tables_at
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.suite import reference
from fedbench.types import Dataset, Splits
from fedbench.words import counted, shortened, suggestion

FOR_TEXTS = "for texts there is --texts FILE"
LAYOUT = "DIR/class/image.jpg or DIR/domain/class/image.jpg"
EVENLY = 6  # clients of one domain, unless it is said how many
FOR_DIRICHLET = 25  # examples for each client from which on classes are dealt unevenly
LONGEST = 128  # tokens of a text that are kept
SIDE = 32  # pixels of an image


@dataclass(frozen=True)
class OwnData:
    """What lies in a folder or in tables.

    Attributes:
        noun: "image" or "text".
        classes: those that are taken, in order.
        counts: examples of those classes by domain.
        one_domain: whether no domains are named.
        settings: of `data` in a suite; its root is as it was found.
        remarks: what is not taken, or was noticed, a sentence each.
    """

    noun: str
    classes: Sequence[str]
    counts: Mapping[str, int]
    one_domain: bool
    settings: Mapping[str, Any]
    remarks: Sequence[str] = ()

    @property
    def about(self) -> str:
        """How many domains, classes and examples there are."""
        domains = counted(len(self.counts), "domain") + (
            "" if self.one_domain else f" ({shortened(list(self.counts))})"
        )
        examples = counted(sum(self.counts.values()), self.noun)
        return f"{domains}, {len(self.classes)} classes ({shortened(self.classes)}), {examples}"


# Tables


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table as the command line names them, empty or None where it does not.

    Attributes:
        content: Of texts, or the two of pairs; or the one of paths.
        label: Of classes.
        domain: Of domains.
    """

    content: Sequence[str] = ()
    label: str | None = None
    domain: str | None = None


def texts_in(place: Path, given: TableColumns) -> OwnData:
    """Read a table or a folder of tables of texts. Raises UserError where `text_table` cannot use it."""
    if not place.exists():
        raise UserError(f"--texts {place}: there is no such file or folder")
    return _table_in(place, "--texts", "text", given)


def _table_in(place: Path, option: str, content: str, given: TableColumns) -> OwnData:
    """What a table holds, all of it read.

    Args:
        place: Of the table, or of a folder of tables.
        option: That of the command line which names it.
        content: What the data set calls the column of texts or of paths.
        given: The columns.
    """
    contents, label = list(given.content) or [content], given.label or "label"
    there = columns_of(table := tables_at(place)[0])
    wanted = {content: contents, "label": [label], "domain": [given.domain] if given.domain else []}
    for name, columns in wanted.items():
        if missing := [column for column in columns if column not in there]:
            has = suggestion(missing[0], there, "it has")
            other = _other_table(content, there)
            raise UserError(f"{table}: no column {missing[0]!r}{has}; {other or f'say --{name} COLUMN'}")
    named: dict[str, Any] = {content: contents[0] if len(contents) == 1 else contents, "label": label}
    taken = {name: name for name in OPTIONAL if name in there and name not in (*contents, label)}
    said = named | taken | ({"domain": given.domain} if given.domain else {})
    noun = "text" if content == "text" else "image"
    settings: dict[str, Any] = {"name": f"{noun}_table", "root": str(place), **said}
    dataset, splits, wrong = _read(settings, option)
    how = ", as the column split has them" if "split" in said else ""
    remarks = [f"{len(splits.train):,} training and {len(splits.test):,} test {noun}s{how}", *dataset.notes, *wrong]
    settings |= {"max_length": LONGEST} if noun == "text" else {"image_size": SIDE, "normalize": "backbone"}
    return OwnData(noun, dataset.classes, _counts(dataset, splits), "domain" not in said, settings, remarks)


def _other_table(content: str, there: Sequence[str]) -> str:
    """What a table that lacks its contents seems to be instead."""
    if content == "path" and "text" in there:
        return FOR_TEXTS
    return "for images there is --images TABLE" if content == "text" and "path" in there else ""


def _read(settings: Mapping[str, Any], option: str) -> tuple[Dataset, Splits, list[str]]:
    """The data set of these settings as `run` has it, and what is wrong with it, a sentence each. Raises UserError
    where no cell could be computed with it."""
    registry = Registry()
    ref = reference(registry.catalogue, "dataset", dict(settings), option)
    skipping = {"unreadable": "skip"} if "unreadable" in ref else {}
    dataset = registry.make("dataset", {**ref, **skipping}, image_size=SIDE)
    splits = loaded(dataset, settings["name"])
    if fault := fault_of_data(splits, dataset):
        raise refusal(settings["name"], fault)
    wrong = [f"WRONG: {doubt}" for doubt in doubts(splits, dataset)]
    if splits.skipped:
        why = dataset.why or (lambda path: "cannot be read")
        wrong.append(f"WRONG: {unreadable_message(str, splits.skipped, splits.listed, why)}")
    return dataset, splits, wrong


def _counts(dataset: Dataset, splits: Splits) -> dict[str, int]:
    """By domain, how many examples there are."""
    numbers = sum(np.bincount(half.domain, minlength=len(dataset.domains)) for half in (splits.train, splits.test))
    return dict(zip(dataset.domains, np.asarray(numbers).tolist(), strict=True))


# Images


def images_in(folder: Path, given: TableColumns | None = None) -> OwnData:
    """What a folder of images holds, or a table of them, all of it read. Raises UserError for another layout, as
    `image_folder` and `image_table` do."""
    if folder.is_file() and folder.suffix.lower() in FORMATS:
        return _table_in(folder, "--images", "path", given or TableColumns())
    if given:
        raise UserError("--path, --label and --domain are columns of --images TABLE; here images lie in a folder")
    if not folder.is_dir():
        raise UserError(_no_folder(folder))
    classes = [name for name in _folders(folder) if _images(folder / name)]
    others = [name for name in _folders(folder) if name not in classes and _has_images_below(folder / name)]
    if loose := _images(folder):
        raise UserError(f"{folder} has {counted(loose, 'image')} in no class; sort them into folders: {LAYOUT}")
    if classes and others:
        raise UserError(
            f"{folder}: {classes[0]} has images, and {others[0]} has folders of them; sort all in one way: {LAYOUT}"
        )
    if not classes and not others:
        raise UserError(f"{folder} has no images in folders of folders; expected {LAYOUT}{_instead(folder)}")
    root = Path(os.path.abspath(folder))
    settings: dict[str, Any] = {"name": "image_folder", "root": str(root.parent if classes else root)}
    settings |= {"domains": [root.name]} if classes else {}
    dataset, splits, wrong = _read(settings, "--images")
    settings |= {"image_size": SIDE, "normalize": "backbone"}
    counts, one_domain = _counts(dataset, splits), bool(classes) or dataset.domains == ("all",)
    return OwnData("image", dataset.classes, counts, one_domain, settings, [*dataset.notes, *wrong])


def _has_images_below(folder: Path) -> bool:
    """Whether folders in it have images, or folders in these."""
    below = [folder / name for name in _folders(folder)]
    return any(map(_images, below)) or any(_images(one / name) for one in below for name in _folders(one))


def _no_folder(path: Path) -> str:
    if not path.exists():
        return f"--images {path}: there is no such folder"
    if path.suffix.lower() in TABLES:
        return f"--images {path} is no table that is read: its name must end in {', '.join(FORMATS)}"
    return f"--images {path} is a file; images lie in a folder for each class: {LAYOUT}"


def _instead(folder: Path) -> str:
    """What there is instead of images, if anything."""
    files = [Path(name) for _, _, names in os.walk(folder) for name in names]
    endings = Counter(file.suffix.lower() for file in files if file.suffix)
    if not endings:
        return ""
    instead = f"; {FOR_TEXTS}, and for images that a table names --images TABLE" if endings.keys() & TABLES else ""
    return f", and there are {', '.join(f'{n} {ending}' for ending, n in endings.most_common(3))}{instead}"


def _folders(folder: Path) -> list[str]:
    return sorted(one.name for one in os.scandir(folder) if one.is_dir() and not is_passed_over(one.name))


def _images(folder: Path) -> int:
    names = (one.name for one in os.scandir(folder) if one.is_file() and not is_passed_over(one.name))
    return sum(os.path.splitext(name)[1].lower() in SUFFIXES for name in names)


# Clients


@dataclass(frozen=True)
class Dealing:
    """How examples are dealt to clients, the layers that each can hold, and a sentence about it."""

    partition: dict[str, Any]
    by_domain: dict[str, list[int]]
    about: str

    @property
    def capacities(self) -> list[int]:
        """The layers of every client."""
        return [L_n for own in self.by_domain.values() for L_n in own]


def dealing(data: OwnData, clients: int | None, layers: int) -> Dealing:
    """Clients of all domains, from the largest to the smallest in each: the largest holds all layers, the smallest a
    quarter or two. Raises UserError for a number that does not fit the domains."""
    D = len(data.counts)
    N = clients or (D if D > 1 else EVENLY)
    if N % D:
        fit = f"{N - N % D} or {N - N % D + D}" if N > D else str(D)
        raise UserError(f"--clients {N}: {D} domains have equally many clients each; give {fit}")
    each, (name, fewest) = N // D, min(data.counts.items(), key=lambda found: found[1])
    if fewest < 2 * each:
        need = f"and {counted(each, 'client')} need{'' if each > 1 else 's'} {2 * each} at least"
        instead = "give fewer --clients" if each > 1 else "give more of them, or merge domains"
        raise UserError(f"the domain {name!r} has {counted(fewest, data.noun)}, {need}; {instead}")
    about = f"{counted(each, 'client')} for each of {D} domains" if D > 1 else counted(each, "client")
    partition = {"name": "by_domain", "clients_per_domain": each}
    if each > 1 and fewest >= FOR_DIRICHLET * each:
        partition = {"name": "dirichlet", "alpha": 0.5, "clients_per_domain": each}
        about += ", whose classes differ (dirichlet, alpha 0.5)"
    smallest = max(layers // 4, 2)
    steps = [round(layers - (layers - smallest) * i / max(N - 1, 1)) for i in range(N)]
    capacities = {name: [steps[j * D + d] for j in range(each)] for d, name in enumerate(data.counts)}
    return Dealing(partition, capacities, about)
