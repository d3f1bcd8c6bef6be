"""The lock of a cell: one process computes it, among all runs and machines that share the results folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from fedbench.disk import LockTimeout, locked_file
from fedbench.errors import CannotWrite
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
    file, deadline = lock_file(folder), time.monotonic() + seconds
    with ExitStack() as held:
        while True:
            try:
                with _gate(folder):
                    held.enter_context(locked_file(file, seconds=0))
                break
            except LockTimeout:
                if time.monotonic() >= deadline:
                    raise Held(f"another process computes {folder}") from None
            time.sleep(POLL)
        yield


def _gate(folder: Path) -> AbstractContextManager[None]:
    """Keep others from opening or deleting lock files: one that is deleted while it is opened could be held twice."""
    return locked_file(suite_folder_of(folder) / GATE)


def lock_file(folder: Path) -> Path:
    """Of the cell with this folder."""
    return folder.parent / f".{folder.name}.lock"


def remove_locks(folders: Iterable[Path]) -> None:
    """Delete the lock files of these cells' folders that no process holds."""
    for folder in folders:
        if lock_file(folder).exists():
            with suppress(LockTimeout, CannotWrite, OSError), _gate(folder), locked_file(lock_file(folder), seconds=0):
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
