"""Which process is which: on this machine or another, and whether one of this machine has ended."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil


def this_process() -> dict[str, Any]:
    """What tells this process from all others, and says where it is."""
    return {"host": platform.node(), "place": _place(), "pid": os.getpid(), "began": _began(os.getpid())}


def is_gone(process: dict[str, Any]) -> bool:
    """Whether a process of this machine has ended; of other machines' processes nothing is known."""
    if process.get("place") != _place():
        return False
    began = _began(process.get("pid"))
    return began != process.get("began") and not (began is None and _is_hidden(process.get("pid")))


def _is_hidden(pid: Any) -> bool:
    """Whether it is somebody else's process: /proc need not show those (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, TypeError, OverflowError):
        pass
    return False


def _place() -> str:
    """Where a process number means one process: this machine since it was started, and this container in it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{platform.node()} {psutil.boot_time():.0f}"


def _began(pid: int | None) -> str | None:
    """When a process was started, which tells it from a later one of its number; None where it has ended."""
    try:
        if psutil.LINUX:  # in ticks since the machine was started, which no setting of the clock changes
            state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return None if state in "ZX" else rest[18]
        return f"{psutil.Process(pid).create_time():.2f}"
    except (OSError, psutil.Error):
        return None
