"""Trees of processes: kept together, weighed and ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl.h


def adopt_orphans() -> None:
    """Become the parent of whatever the descendants of this process leave behind, other sessions and groups included.
    Linux alone offers it; elsewhere a process that makes itself a daemon escapes."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends. Linux alone offers it."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_descendants(patience: float = 5.0) -> None:
    """Kill all that this process started or adopted, until nothing is left or `patience` (seconds) is at its end:
    a process that waits for a broken disk cannot be killed."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for one in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        time.sleep(0.005)


def end_tree(pid: int) -> None:
    """Kill a process and what is below it at this moment."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for one in [*root.children(recursive=True), root]:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def memory(at_least: int = 0) -> int:
    """Bytes of memory that the descendants of this process take. A page that several share counts in parts (PSS),
    which takes a while to add up; where even the plain sum (RSS) is below `at_least`, that is the answer."""
    below = psutil.Process().children(recursive=True)
    total = sum(_of(one, lambda one: one.memory_info().rss) for one in below)
    return total if total < at_least else sum(_of(one, _proportional) for one in below)


def _proportional(process: psutil.Process) -> int:
    found = process.memory_full_info()
    return getattr(found, "pss", found.rss)


def _of(process: psutil.Process, weigh: Callable[[psutil.Process], int]) -> int:
    try:
        return weigh(process)
    except psutil.Error:  # it has ended meanwhile
        return 0
