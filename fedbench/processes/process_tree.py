"""Trees of processes: adopted, measured and ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar

import psutil

T = TypeVar("T")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl.h
PATIENCE = 5.0  # seconds: a process that waits for a broken disk cannot be killed


def adopt_orphans() -> None:
    """Become the parent of what the descendants of this process leave behind, in whatever session or group.

    Linux alone offers it. Elsewhere a process that makes itself a daemon escapes.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends. Linux alone offers it."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_descendants() -> None:
    """Kill what this process started or adopted, until nothing is left."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        _kill(psutil.Process().children(recursive=True))
        time.sleep(0.005)


def end_children_of(pid: int, spared: Collection[int]) -> None:
    """Kill the children of another process but those that are spared, and what is below them, until none is left.

    A listing of processes takes a while. What a child has left behind when it ended meanwhile may be in none of its
    lines, so that only the second empty listing in a row counts.
    """
    until = time.monotonic() + PATIENCE
    empty = 0
    with suppress(psutil.NoSuchProcess):
        while empty < 2 and time.monotonic() < until:
            children = [child for child in psutil.Process(pid).children() if child.pid not in spared]
            for child in children:
                below: list[psutil.Process] = _of(child, lambda one: one.children(recursive=True), [])
                _kill([*below, child])
            empty = 0 if children else empty + 1
            time.sleep(0.005)


def _kill(processes: Collection[psutil.Process]) -> None:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def memory_of_descendants(at_least: int = 0) -> int:
    """Bytes of memory that the descendants of this process take.

    A page that several share counts in parts (PSS), which takes a while to add up. Where even the plain sum (RSS) is
    below `at_least`, that sum is the result.
    """
    below = psutil.Process().children(recursive=True)
    total = sum(_of(one, lambda one: int(one.memory_info().rss), 0) for one in below)
    return total if total < at_least else sum(_of(one, _proportional, 0) for one in below)


def _proportional(process: psutil.Process) -> int:
    found = process.memory_full_info()
    return int(getattr(found, "pss", found.rss))


def _of(process: psutil.Process, look: Callable[[psutil.Process], T], otherwise: T) -> T:
    """What is seen of a process, or something else where it has ended meanwhile."""
    try:
        return look(process)
    except psutil.Error:
        return otherwise
