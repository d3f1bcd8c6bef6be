"""What a process is like beside the cell that it computes, so that the next one may find it as the first one did."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module as modules

from fedbench import machine

cudnn: Any = torch.backends.cudnn  # whose stubs lack `conv` and `rnn`
LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
WATCHED: dict[str, Callable[[], Any]] = {
    "threads": lambda: [thread.ident for thread in threading.enumerate()],
    "processes": lambda: machine.children(os.getpid()),
    "open files": lambda: sorted(_open_files()),
    "current folder": os.getcwd,
    "environment": lambda: dict(os.environ),
    "signals": lambda: [signal.getsignal(number) for number in signal.valid_signals()],
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
    "limits": lambda: [resource.getrlimit(which) for which in LIMITS],
    "import path": lambda: list(sys.path),
    "streams": lambda: (sys.stdout, sys.stderr),
    "recursion limit": sys.getrecursionlimit,
    "tracing": lambda: (sys.gettrace(), sys.getprofile()),
    "numpy's errors": np.geterr,
    "default of torch": lambda: (torch.get_default_dtype(), torch.get_default_device()),
    "threads of torch": torch.get_num_threads,
    "gradients": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
    "determinism": lambda: (torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()),
    "precision": lambda: [part.fp32_precision for part in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)],
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
    "kernels": lambda: torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    "small numbers": lambda: (torch.tensor(1e-310, dtype=torch.float64) * 1.0).item() > 0,  # not where they are flushed
    "hooks of all modules": lambda: [len(hooks) for name, hooks in vars(modules).items() if _are_hooks(name, hooks)],
}


class Found:
    """A process as its first cell finds it."""

    def __init__(self) -> None:
        self.watched = _watched()
        self.drawn = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def changed(self) -> list[str]:
        """What of WATCHED is not as it was."""
        now = _watched()
        return [name for name, before in self.watched.items() if now[name] != before]

    def draw_as_before(self) -> None:
        """Set the generators that all of a process share back to where they were."""
        python, numpy, torch_ = self.drawn
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_)


def _watched() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, look in WATCHED.items():
        try:
            found[name] = look()
        except Exception as error:  # the current folder is gone, say
            found[name] = repr(error)
    return found


def _are_hooks(name: str, hooks: Any) -> bool:
    return name.startswith("_global_") and isinstance(hooks, dict)


def _open_files() -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder that is listed
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found
