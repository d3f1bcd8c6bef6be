"""Locks: one run at a time in a suite's folder, and one process at a time at a cell."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from fedbench.disk import LockTimeout, locked_file, write_atomically
from fedbench.errors import CannotWrite, UserError
from fedbench.results.packed_tables import suite_folder_of

POLL = 0.05  # seconds between two tries
RUN = ".run.lock"  # in the suite's folder; held by the run, merge or pack that writes there
NOTE = ".run.json"  # next to it: who holds the lock, since when, and on which machine
GATE = ".cells.lock"  # in the suite's folder; held while the lock file of a cell is opened or deleted
HELD = "a process of an earlier run is still at work on it; the next run resumes it"


class Held(Exception):
    """Another process has the lock of the cell."""


@contextmanager
def suite_lock(suite_folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of a suite's folder, without which nobody writes there but the cells of the run that has it.

    The system releases it when the process ends, however it ends. What a killed process noted is then written over.

    Args:
        suite_folder: of the results; it is made.
        what: the command that asks for it, for the messages of others.

    Raises:
        UserError: where another process has it, or where the folder cannot be written.
    """
    note = Path(suite_folder) / NOTE
    with ExitStack() as held:
        try:
            held.enter_context(locked_file(note.with_name(RUN), seconds=0))
        except LockTimeout:
            raise UserError(f"{suite_folder}: {_holder(note)}. {_instead(note)}") from None
        if (host := _noted(note).get("host")) not in (None, platform.node()):
            print(
                f"Warning: {suite_folder}: {_holder(note)} and ended without a word. If it is still at work there, "
                f"locks do not reach from {host} to this machine: stop one of the two.",
                file=sys.stderr,
            )
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        facts = {"what": what, "process": os.getpid(), "host": platform.node(), "since": since}
        write_atomically(note, json.dumps(facts).encode())
        try:
            yield
        finally:
            with suppress(OSError):  # the disk has become read-only
                note.unlink()


def _noted(note: Path) -> dict[str, object]:
    """What the holder of a lock wrote of itself; nothing where it had no time to, or where that is damaged."""
    with suppress(OSError, ValueError):
        found = json.loads(note.read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _holder(note: Path) -> str:
    """Who has, or had, the lock."""
    facts = {name: f"{value!s:.80}" for name, value in _noted(note).items()}
    if not facts.keys() >= {"what", "process", "host", "since"}:
        return "another process is at work there"
    return "`{what}` (process {process} on {host}) has been at work there since {since}".format(**facts)


def _instead(note: Path) -> str:
    """What to do while somebody else has the lock."""
    shared = "Wait for it, or share the cells: `--shard I/N`, each with its own --results, joined by `fedbench merge`"
    host = _noted(note).get("host")
    gone = "" if host in (None, platform.node()) else f" (if {host} has crashed, its lock ends a little later)"
    return f"{shared}{gone}."


@contextmanager
def cell_lock(folder: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of the cell with this folder. The system releases it when the process ends, however it ends.

    A run has its suite's folder for itself; but cells of a run that was killed may still be at work on other machines.

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
