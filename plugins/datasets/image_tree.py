"""What lies in a tree root/<domain>/<class>/: its images, and everything that is wrong with it in one message."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedbench.data.image_files import SUFFIXES, TABLES, UnreadableFile, checked
from fedbench.errors import UserError
from fedbench.words import composed, counted, meant, on_a_line, shortened, suggestion, unlike

LAYOUT = "expected images in <root>/<domain>/<class>/, such as <root>/sketch/dog/1.jpg"
MOST_TOLD = 15  # faults of a tree
FEW = 3  # images of a fault


class Tree:
    """The images of a tree, by name alone: whatever is called like one is one, and none is opened.

    images: domain -> class -> paths below the root, sorted; hidden files and files of other kinds are passed over ·
    classes: the names of all, in their order · faults: what is wrong, a sentence each · passed_over: files that Pillow
    may read and that are called otherwise than images here.
    """

    def __init__(self, root: Path, domains: Sequence[str] | None, classes: Sequence[str] | None) -> None:
        """domains, classes: the folders to take, in this order; all of them, sorted, if not given. Raises: UserError
        where the root is no folder."""
        if root.suffix.lower() in TABLES and root.is_file():
            raise UserError(f"{root} is a table, and this data set takes folders of images; `text_table` takes texts")
        if not root.is_dir():
            raise UserError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}; {LAYOUT}")
        self.root, self.wanted = root, classes
        self.faults: list[str] = []
        self.deep: list[str] = []
        self.broken: set[str] = set()  # domains of which not all is known
        self.dead: set[str] = set()  # links in the place of folders
        self.passed_over: list[str] = []
        self.spelt = {composed(name): name for name in classes or ()}  # one class whatever its Unicode form on disk
        self.images = {domain: self._classes(domain) for domain in self._domains(domains)}
        found = sorted({name for classes in self.images.values() for name in classes})
        self.classes = found if self.wanted is None else self.wanted
        if self.deep:
            self.faults.append(_several(self.deep, "lies one folder too deep", "lie one folder too deep"))
        self._judge()

    @property
    def notes(self) -> list[str]:
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
        faults = [*map(on_a_line, faults), *map(on_a_line, self.notes)]
        if len(faults) == 1:
            return f"{faults[0]}; {LAYOUT}"
        more = [f"and {len(faults) - MOST_TOLD} more"] if len(faults) > MOST_TOLD else []
        lines = "".join(f"\n  {fault}" for fault in [*faults[:MOST_TOLD], *more])
        return f"{self.root}: {counted(len(faults), 'fault')}; {LAYOUT}{lines}"

    def _domains(self, wanted: Sequence[str] | None) -> list[str]:
        entries = self._list(self.root)
        loose = self._loose(entries)
        if loose:
            self.faults.append(f"{self.root} itself holds {counted(len(loose), 'image')}, such as {_last(loose[0])}")
        found = self._folders(entries, wanted)
        if wanted is None:
            if not found and not self.faults:
                self.faults.append(f"{self.root} holds no folders")
            return found
        folders = [entry.name for entry in entries if self._is_folder(entry)]
        for name in wanted:
            if name not in found and os.path.join(self.root, name) not in self.dead:
                hint = meant(name, folders, f"there are: {shortened(folders) or 'none'}")
                self.faults.append(f"{self.root} has no domain folder {name!r}; {hint}")
        return [name for name in wanted if name in found]

    def _classes(self, domain: str) -> dict[str, list[str]]:
        """The class folders of one domain that hold images."""
        faults = len(self.faults) + len(self.deep)
        entries = self._list(self.root / domain)
        loose = self._loose(entries)
        if loose:
            where, first = self.root / domain, _last(loose[0])
            self.faults.append(f"{where} holds {counted(len(loose), 'image')} outside class folders, such as {first}")
        found: dict[str, list[str]] = {}
        for name in self._folders(entries, self.wanted):
            if images := self._images(f"{domain}/{name}"):
                called = self.spelt.setdefault(composed(name), name)
                if called in found:
                    self.faults.append(f"{self.root / domain} has {called!r} twice{unlike(name, called)}")
                found[called] = images
        if len(self.faults) + len(self.deep) > faults:
            self.broken.add(domain)
        elif not found and self.wanted is None:
            self.broken.add(domain)
            self.faults.append(f"{self.root / domain} holds no images (the option `domains` lists the folders to take)")
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
        """Note the classes that a domain lacks, or that cannot be split; not of domains of which not all is known."""
        for domain, found in self.images.items():
            for name in self.classes:
                images = found.get(name, [])
                if len(images) == 1:
                    self.faults.append(f"{domain}/{name} has 1 image; training and test need one each")
                elif not images and domain not in self.broken:
                    others = [repr(other) for other, theirs in self.images.items() if name in theirs]
                    which = f", which domain {others[0]} has" if others else ""
                    folders = [entry.name for entry in self._list(self.root / domain) if self._is_folder(entry)]
                    near = suggestion(name, folders, "")
                    self.faults.append(f"domain {domain!r} lacks class {name!r}{which}{near}")

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
        try:
            with os.scandir(folder) as entries:
                return sorted((e for e in entries if not e.name.startswith(".")), key=lambda entry: entry.name)
        except OSError as error:
            self.faults.append(f"cannot list {folder}: {error.strerror}")
            return []

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
