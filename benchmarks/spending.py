"""What a whole command takes, with every process that it starts."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from command import MAIN, TINY, environment
from interleaved import busy

from fedbench.machine import cores

PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl.h


def spent(folder: Path, *words: object, program: Sequence[str] = MAIN, plugin: Path = TINY) -> dict[str, float]:
    """What a command takes in this folder, which its cache stands in too: seconds by the clock and of processors, MiB
    of the largest process, and the share of the machine that others had meanwhile."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that what it leaves is collected here, and counted
    began, before = time.monotonic(), busy()
    given = [*program, *map(str, words), "--plugin", str(plugin), "--results", "r"]
    env = {**environment(), "FEDBENCH_CACHE": str(folder / "cache")}
    command = subprocess.Popen(given, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    _, status, own = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0
    seconds, every = time.monotonic() - began, [own]
    while True:
        try:
            every.append(os.wait4(-1, 0)[2])
        except ChildProcessError:
            break
    processor = sum(one.ru_utime + one.ru_stime for one in every)
    others = max(0.0, busy() - before - processor) / (seconds * cores())
    mib = max(one.ru_maxrss for one in every) / 1024
    return {"seconds": seconds, "processor": processor, "mib": mib, "others": others}
