"""The server that worker processes are forked from, with torch and timm loaded."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, process, resource_tracker, util
from types import ModuleType
from typing import Any

from fedbench import machine
from fedbench.errors import UserError
from fedbench.processes.guard import FROM_OUTSIDE

PRELOAD = "fedbench.runner.forkserver_preload"  # what the server imports before it forks
# Unless they are set. `python -c` would import from the current folder first, as from a `random.py` there.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONSAFEPATH"), "1")
ENVIRONMENT |= machine.same_bits()
SOCKETS = "FEDBENCH_SOCKETS"  # tells the server the folder of its socket, which it removes if its caller is killed


def start_server() -> None:
    """Start the process that guards are forked from, unless it is there. It does not hear Ctrl-C, nor what a scheduler
    sends to every process of a job."""
    if not server_pid():
        require_sockets()
    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, SOCKETS)}
    forkserver.set_forkserver_preload([PRELOAD])
    os.environ.update({name: os.environ.get(name) or value for name, value in ENVIRONMENT.items()})
    os.environ[SOCKETS] = util.get_temp_dir()
    try:
        resource_tracker.ensure_running()  # first, because it unblocks signals for what starts after it
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FROM_OUTSIDE)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def require_sockets() -> None:
    """Try a Unix socket where multiprocessing makes its own. Raises UserError, which names the folder."""
    try:
        folder = tempfile.gettempdir()
    except OSError as error:
        raise UserError(
            f"no folder for temporary files: {error.strerror}. Set TMPDIR to one that can be written to"
        ) from error
    try:
        with tempfile.TemporaryDirectory(prefix="pymp-") as made, socket.socket(socket.AF_UNIX) as opened:
            opened.bind(os.path.join(made, "listener-12345678"))
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{folder}: no socket can be made in this folder for temporary files ({reason}), and worker processes need "
            "one. Set TMPDIR to a folder with a short path, such as /tmp"
        ) from error


def server_pid() -> int:
    """The process id of the server that guards are forked from."""
    return getattr(forkserver._forkserver, "_forkserver_pid", None) or 0


def forget_server() -> None:
    """In a process that was forked: the server is a child of another process, and its lock may be held for ever."""
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        with suppress(OSError):  # while it is open here, the server outlives the process that started it
            os.close(server._forkserver_alive_fd)
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None
    server._lock = threading.Lock()


@contextmanager
def may_have_children() -> Iterator[None]:
    """Let a daemonic process, such as a worker of a pool, start a child, which multiprocessing forbids.

    It does so because children would be left behind when the process is ended. A guard ends by itself then.
    """
    config = process.current_process()._config  # type: ignore[attr-defined]
    daemonic = config.pop("daemon", None)
    try:
        yield
    finally:
        if daemonic is not None:
            config["daemon"] = daemonic


@contextmanager
def no_script() -> Iterator[None]:
    """Hide the user's script while a child starts: multiprocessing would run it again there."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
