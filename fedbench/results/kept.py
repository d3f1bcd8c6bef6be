"""What was read of a large results folder, kept in the cache folder: the next reader reads only what has changed since.

Of each cell the manifest and the digest of its tables, with a stamp of the files that they were read from. A stamp is
compared at every look; where it is another, or the file that keeps all this is torn, of another folder or written by
other code, the cell is read and checked as if nothing were kept. Nothing here comes from the results folder itself, so
that no stranger's folder brings what is believed of it.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.results.choice import declare
from fedbench.results.digest import PARTS, Digest
from fedbench.results.manifest import MANIFEST
from fedbench.results.result import COMPARED
from fedbench.results.scores import Layout
from fedbench.results.store import Stored, code_at_work, folder_in, place_of, read_store, stored

LEAST = 100  # cells of a suite; fewer are read in no time
SEEN = (MANIFEST, *(f"{kind}.parquet" for kind in COMPARED))
NO_FILE = (0, 0, 0, 0)
# Nanoseconds that a file must have been left alone: what changes within one tick of a file system's clock, some of
# which count in whole seconds, leaves no other stamp.
SETTLED = 2 * 10**9
NAMES = list(PARTS)

Stamp = list[int]
Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Keeping:
    """How a reader keeps what it reads.

    trusting: False reads all cells anew, and writes down what they say · tell: is told how many of how many cells have
    been read, where there are LEAST to read or more.
    """

    trusting: bool = True
    tell: Tell = lambda done, of: None

    def of(self, folder: Path, cells: int) -> Kept | None:
        """What is kept of a suite's folder; None for a small one."""
        if cells < LEAST:
            return None
        kept = Kept(folder, self.trusting)
        if cells - kept.known >= LEAST:
            self.tell(0, cells)
        return kept


@dataclass
class Cell:
    """stamp: of the files, as `stamp_of` has it · manifest: what its parts are called, and each of them · digest: the
    parts, by NAMES; empty where it was not read."""

    stamp: Stamp
    manifest: Sequence[bytes]
    digest: Sequence[bytes] = ()


class Kept:
    """Of the cells of one suite's folder; what a reader adds is written down by `save`."""

    def __init__(self, folder: Path, trusting: bool = True) -> None:
        """trusting: as of `Keeping`."""
        self.folder, self.file, self._code = folder, place_of(folder), code_at_work()
        self._before: Mapping[str, Stored] = read_store(self.file, folder, self._code) if trusting else {}
        self._now: dict[str, Cell] = {}
        self._begun: dict[str, Stamp] = {}
        self._made: dict[tuple[Callable[[bytes], Any], bytes], Any] = {}
        self._changed = not trusting

    @property
    def known(self) -> int:
        """Of how many cells there is something."""
        return len(self._before)

    def manifest(self, cell: str) -> Mapping[str, Any] | None:
        """As it was read when its files were as they are now; None where it is to be read."""
        stamp, old = stamp_of(f"{self.folder}/{cell}"), self._before.get(cell)
        if old is None or old[0] != stamp:
            self._begun[cell] = stamp
            return None
        self._now[cell] = Cell(*old)
        return self._read(self._now[cell].manifest)

    def digest(self, cell: str) -> Digest | None:
        """Of a cell whose manifest is believed; None where its tables are to be read."""
        found = self._now.get(cell)
        if found is None or not found.digest:
            return None
        return Digest(partial(self._part, dict(zip(NAMES, found.digest, strict=True))))

    def add_manifest(self, cell: str, manifest: Mapping[str, Any]) -> None:
        """Just read, and checked."""
        stamp = self._begun.pop(cell, None)
        if stamp is None or max(*stamp[::4], *stamp[1::4]) > time.time_ns() - SETTLED:
            return
        config = manifest["config"]
        rest = [name for name in manifest if name != "config"]
        parts = [[rest, list(config)], *(manifest[name] for name in rest), *config.values()]
        self._now[cell] = Cell(stamp, [_encoded(part) for part in parts])
        self._changed = True

    def add_digest(self, cell: str, digest: Digest) -> Digest:
        """Just made of a cell's tables; returns the same without these. Raises: UserError where one is not as it was
        written."""
        found = self._now.get(cell)
        parts = dict(zip(NAMES, [ENCODE.get(name, _encoded)(digest.part(name)) for name in NAMES], strict=True))
        if found is not None:
            found.digest = list(parts.values())
            self._changed = True
        return Digest(partial(self._part, parts))

    def save(self) -> None:
        """Write down what is known by now, if that is more or other than before; a cache folder that cannot be written
        only costs time."""
        if self._changed or self._now.keys() != self._before.keys():
            with suppress(UserError):
                cells = {name: (cell.stamp, cell.manifest, cell.digest) for name, cell in self._now.items()}
                write_atomically(self.file, stored(self.folder, self._code, cells), lasting=False)
                _sweep(self.file)
            self._changed = False

    def _read(self, parts: Sequence[bytes]) -> dict[str, Any]:
        rest, names = self._value(json.loads, parts[0])
        said, config = parts[1 : 1 + len(rest)], parts[1 + len(rest) :]
        manifest = {
            name: Later(part) if name == "files" else self._value(json.loads, part)
            for name, part in zip(rest, said, strict=True)
        }
        manifest["config"] = {name: self._value(json.loads, part) for name, part in zip(names, config, strict=True)}
        declare(manifest.get("metrics", {}))
        return manifest

    def _part(self, parts: Mapping[str, bytes], name: str) -> Any:
        return self._value(DECODE.get(name, json.loads), parts[name])

    def _value(self, decode: Callable[[bytes], Any], part: bytes) -> Any:
        """Each part is read once, however many cells have it in common."""
        key = decode, part
        if key not in self._made:
            self._made[key] = decode(part)
        return self._made[key]


class Later(Mapping[str, Any]):
    """A JSON object that is read when somebody looks into it; few look into the files of ten thousand cells."""

    def __init__(self, part: bytes) -> None:
        self._part = part

    @cached_property
    def _found(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self._part)
        return found

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def stamp_of(cell: str) -> Stamp:
    """Times of change, size and inode of all files of SEEN, zeros for those that are not there: whoever replaces one or
    writes into it cannot leave all of these as they were."""
    found: Stamp = []
    for name in SEEN:
        try:
            s = os.stat(f"{cell}/{name}")
            found += (s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino)
        except OSError:
            found += NO_FILE
    return found


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _numbers(part: bytes) -> array[float]:
    found = array("d")
    found.frombytes(part)
    return found


ENCODE: Mapping[str, Callable[[Any], bytes]] = {
    "layout": lambda layout: _encoded(layout.columns),
    "values": lambda values: array("d", values).tobytes(),
}
DECODE: Mapping[str, Callable[[bytes], Any]] = {
    "layout": lambda part: Layout(json.loads(part)),
    "values": _numbers,
}


def _sweep(file: Path) -> None:
    """Delete what is kept of folders that are gone."""
    for other in file.parent.glob(f"*{file.suffix}"):
        with suppress(OSError, ValueError, KeyError):
            if other != file and not Path(folder_in(other)).is_dir():
                other.unlink()
