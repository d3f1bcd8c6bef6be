"""What lies in a tree root/<domain>/<class>/: its images and splits, and all that is wrong with it in one message."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedbench.data.image_files import SUFFIXES, TABLES, UnreadableFile, checked
from fedbench.data.names import SPLITS, TEST, TRAIN, Names, is_passed_over, splits_among
from fedbench.errors import UserError
from fedbench.words import composed, counted, meant, on_a_line, shortened, suggestion, unlike

LAYOUT = "expected images in <root>/<domain>/<class>/, such as <root>/sketch/dog/1.jpg"
MOST_TOLD = 15  # faults of a tree
FEW = 3  # images of a fault


class Tree:
    """The images of a tree, by name alone: whatever is called like one is one, and none is opened.

    Where all folders of the root, or of every domain, are called train, test, val or validation, they are splits.

    Attributes:
        images: domain -> class -> paths below the root, sorted; hidden files and files of other kinds are passed over.
        tests: those in a test split, or None where no folder is a split.
        classes: the names of all, in their order.
        faults: what is wrong, a sentence each.
        passed_over: files that Pillow may read and that are called otherwise than images here.
    """

    def __init__(self, root: Path, domains: Sequence[str] | None, classes: Sequence[str] | None) -> None:
        """domains, classes: the folders to take, in this order; all of them, sorted, if not given. Raises: UserError
        where the root is no folder."""
        if root.suffix.lower() in TABLES and root.is_file():
            raise UserError(
                f"{root} is a table, and this data set takes folders of images; `image_table` takes a table of images; "
                "`text_table` takes texts"
            )
        if not root.is_dir():
            raise UserError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}; {LAYOUT}")
        self.root, self.wanted = root, classes
        self.faults: list[str] = []
        self.deep: list[str] = []
        self.broken: set[str] = set()  # domains of which not all is known
        self.dead: set[str] = set()  # links in the place of folders
        self.passed_over: list[str] = []
        self.named = Names(classes or ())  # one class whatever its Unicode form on disk
        self.tests: set[str] | None = None
        self.notes_of_splits: list[str] = []
        self.known: dict[Path, list[os.DirEntry[str]]] = {}  # what folders hold
        places = self._places(domains)
        self.images = {domain: self._classes(domain, folders) for domain, folders in places.items()}
        found = sorted({name for classes in self.images.values() for name in classes})
        self.classes = found if self.wanted is None else self.wanted
        if self.deep:
            self.faults.append(_several(self.deep, "lies one folder too deep", "lie one folder too deep"))
        self._judge()

    @property
    def notes(self) -> list[str]:
        """What may be no fault, a sentence each."""
        return [*self.notes_of_splits, *self._classes_noted(), *self._others_noted()]

    def _classes_noted(self) -> list[str]:
        """Which domains lack which classes, and of which they have one image, which is trained on."""
        lacking, lone = [], []
        for domain, found in self.images.items():
            for name in self.classes:
                images = found.get(name, [])
                if not images and domain not in self.broken:
                    lacking.append(f"{domain!r} lacks {name!r}")
                if len(images) == 1 and self.tests is None:
                    lone.append(f"{domain}/{name}")
        return [
            *([f"classes that a domain lacks: {shortened(lacking, FEW)}"] if lacking else []),
            *([f"classes of one image in a domain, which is trained on: {shortened(lone, FEW)}"] if lone else []),
        ]

    def _others_noted(self) -> list[str]:
        """How many files are passed over that may be images, by their endings."""
        endings = Counter(os.path.splitext(path)[1].lower() for path in self.passed_over)
        if not endings:
            return []
        kinds = ", ".join(f"{n:,} {ending}" for ending, n in sorted(endings.items()))
        files = "file that may be an image is" if len(self.passed_over) == 1 else "files that may be images are"
        message = f"{len(self.passed_over):,} {files} not taken: {kinds}, such as {self.passed_over[0]}"
        return [f"{message}; what counts is called {', '.join(sorted(SUFFIXES))}"]

    def message(self, unreadable: str) -> str:
        """All that is wrong, for people; with what cannot be an image, unless those are to be skipped."""
        faults = list(self.faults)
        paths = [path for found in self.images.values() for images in found.values() for path in images]
        if unreadable == "fail" and (odd := [text for path in paths if (text := self._odd(path))]):
            faults.append(
                f"{len(odd):,} of {len(paths):,} images cannot be read (`unreadable: skip` leaves them out): "
                + shortened(odd, FEW)
            )
        faults = [*map(on_a_line, faults), *map(on_a_line, self._others_noted())]
        if len(faults) == 1:
            return f"{faults[0]}; {LAYOUT}"
        more = [f"and {len(faults) - MOST_TOLD} more"] if len(faults) > MOST_TOLD else []
        lines = "".join(f"\n  {fault}" for fault in [*faults[:MOST_TOLD], *more])
        return f"{self.root}: {counted(len(faults), 'fault')}; {LAYOUT}{lines}"

    def _places(self, wanted: Sequence[str] | None) -> dict[str, dict[str, str]]:
        """Domain -> split ("" where folders name none) -> the folder below the root that has its folders of classes."""
        entries = self._list(self.root)
        loose = self._loose(entries)
        if loose:
            self.faults.append(f"{self.root} itself holds {counted(len(loose), 'image')}, such as {_last(loose[0])}")
        folders = [entry.name for entry in entries if self._is_folder(entry)]
        if not set(wanted or ()) & set(folders) and (splits := self._splits("", folders)):
            return self._below_splits(splits, wanted)
        places = {}
        for domain, folder in self._domains(entries, wanted).items():
            below = [entry.name for entry in self._list(self.root / folder) if self._is_folder(entry)]
            inside = self._splits(folder, below)
            places[domain] = {split: f"{folder}/{name}" for split, name in inside.items()} or {"": folder}
        bare = [domain for domain, of in places.items() if "" in of]
        if self.tests is not None and bare:
            other = next(domain for domain, of in places.items() if "" not in of)
            self.faults.append(f"{other} has folders of splits, and {bare[0]} has none; arrange all domains in one way")
        return places

    def _splits(self, folder: str, below: Sequence[str]) -> dict[str, str]:
        """What is called as splits are among the folders below one, as `splits_among` has it: all that hold images."""
        called = [name for name in below if name.casefold() in SPLITS]
        if len(called) < 2 or TRAIN not in {SPLITS[name.casefold()] for name in called}:
            return {}
        others = [name for name in below if name not in called and self._holds_images(self.root / folder / name)]
        splits = {} if others else splits_among(called)
        if not splits:
            names = shortened([*called, *others])
            self.faults.append(
                f"{self.root / folder} has {names}: some are called as splits are; call all so, and each split once, "
                "or say by `domains` that they are domains"
            )
        elif self.tests is None:
            self.tests = set()
            self.notes_of_splits = [f"{splits[TRAIN]!r} is taken for training and {splits[TEST]!r} for tests"]
        left = [f"{folder}/{name}".lstrip("/") for name in called if splits and name not in splits.values()]
        self.notes_of_splits += [f"validation images are left out: {name}" for name in left]
        return splits

    def _holds_images(self, folder: Path) -> bool:
        """Whether there are any in it, however deep."""
        return any(os.path.splitext(name)[1].lower() in SUFFIXES for _, _, names in os.walk(folder) for name in names)

    def _below_splits(self, splits: Mapping[str, str], wanted: Sequence[str] | None) -> dict[str, dict[str, str]]:
        """Of folders of splits in the root, with those of domains in them, or of classes of the one domain `all`."""
        inside = {name: self._list(self.root / name) for name in splits.values()}
        below = [Path(entry.path) for entries in inside.values() for entry in entries if self._is_folder(entry)]
        if wanted is None and (not below or any(_is_image(entry) for one in below for entry in self._list(one))):
            return {"all": dict(splits)}
        places: dict[str, dict[str, str]] = {}
        for split, name in splits.items():
            for domain, folder in self._domains(inside[name], wanted, name).items():
                places.setdefault(domain, {})[split] = f"{name}/{folder}"
        return places

    def _domains(
        self, entries: Sequence[os.DirEntry[str]], wanted: Sequence[str] | None, below: str = ""
    ) -> dict[str, str]:
        """The domains, and what their folders are called on disk. below: the folder that has the entries."""
        found, named = {}, Names(wanted or ())
        for folder in self._folders(entries, wanted):
            if (name := named(folder)) in found:
                self.faults.append(f"{self.root / below} has {name!r} twice{unlike(folder, name)}")
            found[name] = folder
        if wanted is None:
            if not found and not self.faults:
                self.faults.append(f"{self.root / below} holds no folders")
            return found
        folders = [entry.name for entry in entries if self._is_folder(entry)]
        for name in wanted:
            if name not in found and os.path.join(self.root, below, name) not in self.dead:
                hint = meant(name, folders, f"there are: {shortened(folders) or 'none'}")
                self.faults.append(f"{self.root / below} has no domain folder {name!r}; {hint}")
        return {name: found[name] for name in wanted if name in found}

    def _classes(self, domain: str, folders: Mapping[str, str]) -> dict[str, list[str]]:
        """The images of each class of one domain. folders: those that have folders of classes, by split."""
        faults = len(self.faults) + len(self.deep)
        found: dict[str, list[str]] = {}
        for split, folder in folders.items():
            for name, images in self._in_classes(folder).items():
                found.setdefault(name, []).extend(images)
                if split == TEST and self.tests is not None:
                    self.tests.update(images)
        where = self.root / next(iter(folders.values()))
        if len(self.faults) + len(self.deep) > faults:
            self.broken.add(domain)
        elif not found and self.wanted is None:
            self.broken.add(domain)
            self.faults.append(f"{where} holds no images (the option `domains` lists the folders to take)")
        return found

    def _in_classes(self, folder: str) -> dict[str, list[str]]:
        """The class folders of one folder that hold images."""
        entries = self._list(self.root / folder)
        loose = self._loose(entries)
        if loose:
            where, first = self.root / folder, _last(loose[0])
            self.faults.append(f"{where} holds {counted(len(loose), 'image')} outside class folders, such as {first}")
        found: dict[str, list[str]] = {}
        for name in self._folders(entries, self.wanted):
            if images := self._images(f"{folder}/{name}"):
                called = self.named(name)
                if called in found:
                    self.faults.append(f"{self.root / folder} has {called!r} twice{unlike(name, called)}")
                found[called] = images
        return found

    def _images(self, folder: str) -> list[str]:
        """The images of one class folder. A folder among them is looked into, since images may lie too deep; one that
        is called like an image and holds none stands in the place of an image."""
        found = []
        entries = self._list(self.root / folder)
        self._loose(entries)
        for entry in entries:
            below = []
            if self._is_folder(entry):
                below = self._loose(self._list(Path(entry.path)))
                self.deep += below
            if _is_image(entry) and not below:
                found.append(f"{folder}/{entry.name}")
        return found

    def _loose(self, entries: Iterable[os.DirEntry[str]]) -> list[str]:
        """The paths of images among the entries that are no folders; those of other endings are counted."""
        files = [entry for entry in entries if not self._is_folder(entry)]
        others = [entry for entry in files if _ending(entry) in _readable() - SUFFIXES]
        self.passed_over += [os.path.relpath(entry.path, self.root) for entry in others]
        return [entry.path for entry in files if _is_image(entry)]

    def _judge(self) -> None:
        """Note classes that are asked for and that nothing has, and a tree of which nothing can be tested."""
        for name in [name for name in self.classes if not any(name in found for found in self.images.values())]:
            folders = [entry.name for entries in self.known.values() for entry in entries if self._is_folder(entry)]
            self.faults.append(f"no domain has an image of the class {name!r}{suggestion(name, folders, '')}")
        images = [paths for found in self.images.values() for paths in found.values()]
        if self.tests is None and images and not self.faults and max(map(len, images)) < 2:
            self.faults.append(f"{self.root} has one image of each class; training and test need one each")

    def _folders(self, entries: Iterable[os.DirEntry[str]], wanted: Sequence[str] | None) -> list[str]:
        """The names of folders among the entries. A link that leads to none may have been one."""
        found = []
        for entry in entries:
            if wanted is not None and composed(entry.name) not in map(composed, wanted):
                continue
            if self._is_folder(entry):
                found.append(entry.name)
            elif entry.is_symlink() and (wanted or not _is_image(entry)) and (why := _odd(Path(entry.path))):
                self.dead.add(entry.path)
                self.faults.append(f"{entry.path} is {why}, where a folder of images may be expected")
        return found

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir()
        except OSError:  # a link that leads back to itself
            return False

    def _list(self, folder: Path) -> list[os.DirEntry[str]]:
        if folder not in self.known:
            self.known[folder] = []
            try:
                with os.scandir(folder) as entries:
                    found = [entry for entry in entries if not is_passed_over(entry.name)]
                    self.known[folder] = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                self.faults.append(f"cannot list {folder}: {error.strerror}")
        return self.known[folder]

    def _odd(self, path: str) -> str:
        """The path of what cannot be an image, as far as that shows without opening it, and why."""
        why = _odd(self.root / path)
        return f"{path} ({why})" if why else ""


def _odd(file: Path) -> str:
    try:
        return "" if checked(file).st_size else "an empty file"
    except UnreadableFile as error:
        return error.why


def _is_image(entry: os.DirEntry[str]) -> bool:
    return _ending(entry) in SUFFIXES


def _ending(entry: os.DirEntry[str]) -> str:
    return os.path.splitext(entry.name)[1].lower()


@functools.cache
def _readable() -> frozenset[str]:
    """The endings of all files that Pillow opens."""
    from PIL import Image

    known = Image.registered_extensions()
    return frozenset(ending for ending, kind in known.items() if kind in Image.OPEN)


def _last(path: str) -> str:
    return os.path.basename(path)


def _several(paths: Sequence[str], one: str, many: str) -> str:
    return f"{paths[0]} {one}" if len(paths) == 1 else f"{len(paths):,} images {many}, such as {paths[0]}"
