"""Reading many files at once: threads, a progress bar, content hashes remembered between scans."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from fedbench import machine
from fedbench.disk import as_written, cache_dir, hash_of_bytes, keep, kept
from fedbench.errors import UserError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"}  # of the images that a tree is read for
TABLES = {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt"}  # of what may hold texts instead
CHUNK = 32
T = TypeVar("T")

# What may stand under the name of a file and is none; to open some of these waits for ever.
_OTHERS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnreadableFile(UserError):
    """A file, or a row of a table, whose bytes cannot be had. why: the reason, without its place."""

    def __init__(self, place: object, why: str) -> None:
        super().__init__(f"cannot open {place}: {why}")
        self.why = why


class ImageStore(Protocol):
    """Where encoded images are read from: a folder, or the rows of a table."""

    def read(self, path: str) -> bytes:
        """The bytes of one image. Raises: UserError where they cannot be had."""

    def hashes(self, paths: Sequence[str]) -> dict[str, str]:
        """sha256 of every image's bytes, in the order of `paths`, but of those whose bytes cannot be had."""

    def place(self, path: str) -> str:
        """What to call an image in a message."""


class Folder:
    """The files below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str) -> bytes:
        return content(self.root, path)

    def hashes(self, paths: Sequence[str]) -> dict[str, str]:
        return scanned(self.root, paths)[0]

    def place(self, path: str) -> str:
        return str(self.root / path)


def as_on_disk(root: Path, paths: Sequence[str], place: Callable[[int], str], what: str) -> list[str]:
    """Paths below root as the file system spells them. Whether they can be read is not looked at here: a link that
    leads nowhere is there.

    Args:
        root: The folder.
        paths: Those to look up.
        place: Where a path is named, by its position, for messages.
        what: What names them.

    Raises:
        UserError: With the first that is not there, and how many are not.
    """

    def look_up(i: int) -> str:
        if os.path.lexists(root / paths[i]):
            return paths[i]
        written = as_written(root / paths[i])
        return written.relative_to(root).as_posix() if os.path.lexists(written) else ""

    there = in_threads(look_up, len(paths), f"looking up {what}")
    if not all(there):
        first = there.index("")
        slashes = "; write / in place of \\" if "\\" in paths[first] else ""
        raise UserError(
            f"{place(first)}: {root / paths[first]} is not there "
            f"({there.count(''):,} of {len(paths):,} images of this {what} are missing){slashes}"
        )
    return there


def content_hashes(root: Path, paths: Sequence[str]) -> dict[str, str]:
    """sha256 of every file, as `scanned` has it. Raises: UserError where one cannot be opened."""
    hashes, lost = scanned(root, paths)
    for path, why in lost.items():
        raise UnreadableFile(root / path, why)
    return hashes


def scanned(root: Path, paths: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """sha256 of every file that can be read, and why of every other; one that has the size and times it had at the last
    scan is not read again."""
    sidecar = cache_dir() / "hashes" / f"{hash_of_bytes(os.fsencode(root.resolve()))[:24]}.json"
    known = kept(sidecar) or {}  # path -> [[size, mtime, ctime], sha256]
    started = time.time_ns()

    def work(i: int) -> tuple[list[int], str] | str:
        try:
            found = checked(root / paths[i])
            facts = [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
            seen = known.get(paths[i])
            return (facts, seen[1] if seen and seen[0] == facts else hash_of_bytes(content(root, paths[i])))
        except UnreadableFile as error:
            return error.why

    done = dict(zip(paths, in_threads(work, len(paths), "hashing images"), strict=True))
    lost = {path: why for path, why in done.items() if isinstance(why, str)}
    found = {path: fact for path, fact in done.items() if not isinstance(fact, str)}
    # a file touched within the clock's resolution of the scan could change again and keep its times
    settled = {path: fact for path, fact in found.items() if max(fact[0][1:]) < started - 2_000_000_000}
    if any(known.get(path) != list(fact) for path, fact in settled.items()):
        keep(sidecar, known | settled)
    return {path: digest for path, (_, digest) in found.items()}, lost


def checked(file: Path) -> os.stat_result:
    """The facts of a file, which is not opened. Raises: Unreadable where there is none: also for a link that leads
    nowhere, a folder, a FIFO, a socket and a device."""
    try:
        found = file.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnreadableFile(file, "a link that leads back to itself") from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and os.path.islink(file):
            raise UnreadableFile(file, "a link that leads nowhere") from error
        raise UnreadableFile(file, error.strerror or str(error)) from error
    for is_one, noun in _OTHERS:
        if is_one(found.st_mode):
            raise UnreadableFile(file, f"{noun}, not a file")
    return found


def in_threads(work: Callable[[int], T], count: int, title: str) -> list[T]:
    """[work(0), ..., work(count - 1)], one thread a core; the first error ends it all.

    For hashing and decoding: there threads are as fast as processes, since both release the GIL.
    """
    pool = ThreadPoolExecutor(machine.cores())
    results: list[T] = []

    def chunk(start: int) -> list[T]:
        return [work(i) for i in range(start, min(start + CHUNK, count))]

    try:
        with progress(title, count) as advance:
            for done in pool.map(chunk, range(0, count, CHUNK)):
                results += done
                advance(len(done))
        return results
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal and the work is not over at once; silence elsewhere."""
    if not sys.stderr.isatty() or total <= CHUNK:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def content(root: Path, path: str) -> bytes:
    """The bytes of one file below root. Raises: Unreadable where there are none to be had."""
    checked(root / path)
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise UnreadableFile(root / path, error.strerror or str(error)) from error
