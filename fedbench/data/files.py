"""Reading many files at once: threads, a progress bar, content hashes remembered between scans."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from fedbench import machine
from fedbench.disk import cache_dir, hash_of_bytes, keep, kept
from fedbench.errors import UserError

CHUNK = 32
T = TypeVar("T")


class Store(Protocol):
    """Where encoded images are read from: a folder, or the rows of a table."""

    def read(self, path: str) -> bytes:
        """The bytes of one image. Raises: UserError where they cannot be had."""

    def hashes(self, paths: Sequence[str]) -> dict[str, str]:
        """sha256 of every image's bytes."""

    def place(self, path: str) -> str:
        """What to call an image in a message."""


class Folder:
    """The files below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str) -> bytes:
        return content(self.root, path)

    def hashes(self, paths: Sequence[str]) -> dict[str, str]:
        return content_hashes(self.root, paths)

    def place(self, path: str) -> str:
        return str(self.root / path)


def content_hashes(root: Path, paths: Sequence[str]) -> dict[str, str]:
    """sha256 of every file; one that has the size and times it had at the last scan is not read again.

    Raises: UserError where a file cannot be opened.
    """
    sidecar = cache_dir() / "hashes" / f"{hash_of_bytes(os.fsencode(root.resolve()))[:24]}.json"
    known = kept(sidecar) or {}  # path -> [[size, mtime, ctime], sha256]
    started = time.time_ns()

    def work(i: int) -> tuple[list[int], str]:
        try:
            stat = (root / paths[i]).stat()
        except OSError as error:
            raise UserError(f"cannot open {root / paths[i]}: {error.strerror}") from error
        facts = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        seen = known.get(paths[i])
        if seen and seen[0] == facts:
            return facts, seen[1]
        return facts, hash_of_bytes(content(root, paths[i]))

    found = dict(zip(paths, in_threads(work, len(paths), "hashing images"), strict=True))
    # a file touched within the clock's resolution of the scan could change again and keep its times
    settled = {path: fact for path, fact in found.items() if max(fact[0][1:]) < started - 2_000_000_000}
    if any(known.get(path) != list(fact) for path, fact in settled.items()):
        keep(sidecar, known | settled)
    return {path: digest for path, (_, digest) in found.items()}


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
    """The bytes of one file below root. Raises: UserError where it cannot be opened."""
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot open {root / path}: {error.strerror}") from error
