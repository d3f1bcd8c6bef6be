"""The lock of a cell: one process computes it, among all runs and machines that share the results folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedbench.disk import cannot_write
from fedbench.results.identity import id_in
from fedbench.results.store import suite_folder_of

POLL = 0.05  # seconds between two tries
GATE = ".cells.lock"  # in the suite's folder; held while a lock file is opened or deleted


class Held(Exception):
    """Another process has the lock of the cell."""


@contextmanager
def cell_lock(folder: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of the cell with this folder. The system releases it when the process ends, however it ends.

    Args:
        folder: the cell's.
        seconds: how long to wait for it.

    Raises:
        Held: after that time.
        UserError: where it cannot be written, in a read-only folder for example.
    """
    from filelock import FileLock, Timeout

    file, deadline = lock_file(folder), time.monotonic() + seconds
    lock = FileLock(file)
    while True:
        try:
            with _gate(folder):
                file.parent.mkdir(parents=True, exist_ok=True)
                lock.acquire(timeout=0)
            break
        except Timeout:
            if time.monotonic() >= deadline:
                raise Held(f"another process computes {folder}") from None
        except OSError as error:
            raise cannot_write(file, error) from error
        time.sleep(POLL)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _gate(folder: Path) -> Iterator[None]:
    """Keep others from opening or deleting lock files: one that is deleted while it is opened could be held twice."""
    from filelock import FileLock

    suite_folder = suite_folder_of(folder)
    suite_folder.mkdir(parents=True, exist_ok=True)
    with FileLock(suite_folder / GATE):
        yield


def lock_file(folder: Path) -> Path:
    """Of the cell with this folder, whatever its name begins with."""
    return folder.parent / f".{id_in(folder.name)}.lock"


def remove_locks(folders: Iterable[Path]) -> None:
    """Delete the lock files of these cells' folders that no process holds."""
    from filelock import FileLock, Timeout

    for folder in folders:
        if lock_file(folder).exists():
            with suppress(Timeout, OSError), _gate(folder), FileLock(lock_file(folder), timeout=0):
                lock_file(folder).unlink()


def is_held(folder: Path) -> bool:
    """Whether a process computes the cell with this folder at this moment."""
    if not lock_file(folder).exists():
        return False
    try:
        with cell_lock(folder):
            return False
    except Held:
        return True
