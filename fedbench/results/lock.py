"""The lock of a cell: one process computes it, among all runs and machines that share the results folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbench.disk import cannot_write
from fedbench.results.identity import id_in

POLL = 0.05  # seconds between two tries


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

    file = lock_file(folder)
    lock = FileLock(file, timeout=seconds, poll_interval=POLL)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise Held(f"another process computes {folder}") from None
    except OSError as error:
        raise cannot_write(file, error) from error
    try:
        yield
    finally:
        lock.release()


def lock_file(folder: Path) -> Path:
    """Of the cell with this folder, whatever its name begins with. The file stays: a lock that is deleted while another
    process opens it can be held twice."""
    return folder.parent / f".{id_in(folder.name)}.lock"


def is_held(folder: Path) -> bool:
    """Whether a process computes the cell with this folder at this moment."""
    if not lock_file(folder).exists():
        return False
    try:
        with cell_lock(folder):
            return False
    except Held:
        return True
