"""Which run computes which cell: a claim is a hidden file that one run creates and keeps giving signs of life.

The run that hands a cell out claims it, and the process that computes the cell joins the claim: it stands as long as
one of the two is alive, so that the last worker of a run that was killed is no second writer. A claim is taken over
when both are known to be gone (same machine), or gave no sign of life for `patience()` seconds. How long that is, each
run measures by its own clock, so that the clocks of two machines need not agree.

Assumed of a shared file system: creating a file exclusively is atomic, opening a file shows its latest time of change,
and filelock's locks reach all machines, as those of index.json must.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedbench.disk import cannot_write, write_atomically
from fedbench.errors import UserError
from fedbench.results.processes import is_gone, this_process

LOCK = ".claims.lock"
BEATS = 6  # signs of life within the time after which a claim is stale
POLL = 0.01  # seconds between two tries at the lock, which is held for less

Claim = dict[str, str]  # `file` and `token`, and `attempt` where it was handed out: what a job is handed


class Taken(Exception):
    """Another run has taken the cell over, because this one gave no sign of life for too long."""


def patience() -> float:
    """Seconds without a sign of life after which a claim is stale. Raises: UserError for what is no number."""
    told = os.environ.get("FEDBENCH_STALE_AFTER", "60")
    try:
        seconds = float(told)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"FEDBENCH_STALE_AFTER: expected a number of seconds above 0, got {told!r}")
    return seconds


class Claims:
    """The claims of one run on a suite's folder; a context manager that gives all of them back at its end."""

    def __init__(self, suite_folder: Path) -> None:
        self.folder = Path(suite_folder).resolve()
        self.mine: dict[str, Claim] = {}
        self._patience = patience()
        self._seen: dict[str, tuple[int, float]] = {}  # by id: a claim's last sign of life, and when it was first seen

    def __enter__(self) -> Claims:
        self._stop = _beat(self.mine)
        self._sweep()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop()
        for id in list(self.mine):
            self.release(id)
        self._sweep()

    def take(self, id: str) -> Claim | None:
        """Claim a cell for this run, or None where another has it. Raises: UserError where it cannot be written."""
        file, token = self._file(id), secrets.token_hex(8)
        with _lock(self.folder):
            if self.holder(id):
                return None
            file.unlink(missing_ok=True)
            try:
                with open(file, "x") as new:
                    json.dump({"token": token, "run": this_process(), "worker": None}, new)
            except FileExistsError:  # by a machine that the lock does not reach
                return None
            except OSError as error:
                with suppress(OSError):  # a file without a word would bar the cell to all for a while
                    file.unlink(missing_ok=True)
                raise cannot_write(file, error) from error
        self.mine[id] = {"file": str(file), "token": token}
        return self.mine[id]

    def release(self, id: str) -> bool:
        """Give a claim back; whether it was this run's to the end. One that cannot be deleted is stale soon."""
        claim = self.mine.pop(id, None)
        if claim is None:
            return False
        try:
            with _lock(self.folder):
                if held := is_held(claim):
                    self._file(id).unlink(missing_ok=True)
        except (UserError, OSError):  # a disk that is read-only by now
            return is_held(claim)
        return held

    def holder(self, id: str) -> str | None:
        """Who has a cell, in words; None where it may be claimed."""
        found = _read(self._file(id))
        if found is None:
            self._seen.pop(id, None)
            return None
        content, sign = found
        if self._is_stale(id, content, sign):
            return None
        run = content.get("run", {})
        return f"process {run.get('pid')} on {run.get('host')}" if run else "another process"

    def _sweep(self) -> None:
        """Delete the claims of runs that were killed, and what machines told these, or told after the end: see
        `executors.dispatch`."""
        for file in (*self.folder.glob(".*.events"), *self.folder.glob(".*.claim")):
            id = file.name.split(".")[1]
            with suppress(UserError, OSError), _lock(self.folder):  # a disk that is read-only, say
                if not self.holder(id):
                    file.unlink(missing_ok=True)

    def _is_stale(self, id: str, content: dict[str, Any], sign: int) -> bool:
        processes = [one for one in (content.get("run"), content.get("worker")) if one]
        if processes and all(is_gone(one) for one in processes):
            return True
        if self._seen.get(id, (None,))[0] != sign:
            self._seen[id] = (sign, time.monotonic())
        return time.monotonic() - self._seen[id][1] > self._patience

    def _file(self, id: str) -> Path:
        return self.folder / f".{id}.claim"


@contextmanager
def joined(claim: Claim | None) -> Iterator[Callable[[], None]]:
    """Keep a run's claim alive from the process that computes the cell.

    Yields a check to be called before anything is written. Both raise Taken where the claim is the run's no more.
    claim: None where no other run can be at the cell.
    """
    if claim is None:
        yield lambda: None
        return

    def check() -> None:
        if not is_held(claim):
            raise Taken("another run has taken the cell over")

    file = Path(claim["file"])
    with _lock(file.parent):
        check()
        content, _ = _read(file) or ({}, 0)
        with suppress(UserError):  # a full disk: the run's own sign of life stands, and the next write tells of it
            _write(file, {**content, "worker": this_process()})
    stop = _beat({"": claim})
    try:
        yield check
    finally:
        stop()


def handed_out(claim: Claim) -> Claim:
    """The claim for one more attempt at its cell, by a process that may be on another machine.

    Who was handed it before holds it no more: what a lost machine may have left at work writes nothing from now on.
    Raises: Taken where the claim is the run's no more.
    """
    attempt = secrets.token_hex(8)
    _amend({key: claim[key] for key in ("file", "token")}, attempt=attempt, worker=None, ending=False)
    return {**claim, "attempt": attempt}


def ask_to_end(claim: Claim) -> None:
    """Ask who was handed a claim, wherever it is, to end its cell; see `is_to_end`. Raises: Taken."""
    _amend(claim, ending=True)


def is_to_end(claim: Claim) -> bool:
    """Whether who was handed a claim was asked to end, or holds it no more."""
    found = _read(Path(claim["file"]))
    return not is_held(claim) or (found is not None and bool(found[0].get("ending")))


def is_held(claim: Claim | None) -> bool:
    """Whether nobody has taken a claim over; nobody does where there is none.

    A run holds its claim whatever was handed out of it, an attempt no longer than until the next one.
    """
    if claim is None:
        return True
    found = _read(Path(claim["file"]))
    if found is None or found[0].get("token") != claim["token"]:
        return False
    return "attempt" not in claim or found[0].get("attempt") == claim["attempt"]


def _amend(claim: Claim, **changes: Any) -> None:
    """Change what a claim says. Raises: Taken where it is not held."""
    file = Path(claim["file"])
    with _lock(file.parent):
        found = _read(file)
        if found is None or not is_held(claim):
            raise Taken("another run has taken the cell over")
        _write(file, {**found[0], **changes})


def _write(file: Path, content: dict[str, Any]) -> None:
    """Not to last: with the machine, those at work on it are gone, and others wait for the lock meanwhile."""
    write_atomically(file, json.dumps(content).encode(), lasting=False)


def _beat(claims: dict[str, Claim]) -> Callable[[], None]:
    """Give a sign of life for each of `claims`, which may change, until the function that is returned is called."""
    stopped, interval = threading.Event(), patience() / BEATS

    def beat() -> None:
        while not stopped.wait(interval):
            for claim in list(claims.values()):
                with suppress(OSError):  # the next one may go through
                    if is_held(claim):
                        os.utime(claim["file"])

    thread = threading.Thread(target=beat, name="fedbench claims", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join()

    return stop


@contextmanager
def _lock(suite_folder: Path) -> Iterator[None]:
    """Raises: UserError where the lock cannot be had: a read-only folder, say."""
    from filelock import FileLock

    lock = FileLock(suite_folder / LOCK)
    try:
        lock.acquire(poll_interval=POLL)
    except OSError as error:
        raise cannot_write(suite_folder / LOCK, error) from error
    try:
        yield
    finally:
        lock.release()


def _read(file: Path) -> tuple[dict[str, Any], int] | None:
    """What a claim says ({} where it is torn) and its last sign of life; None where there is none."""
    try:
        with open(file) as claim:  # opened anew each time: NFS then asks its server
            sign = os.fstat(claim.fileno()).st_mtime_ns
            content = json.load(claim)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return {}, sign
    ours = isinstance(content, dict) and all(isinstance(content.get(k) or {}, dict) for k in ("run", "worker"))
    return (content, sign) if ours else ({}, sign)
