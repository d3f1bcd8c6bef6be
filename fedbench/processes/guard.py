"""The guard of a worker process: holds its limits, keeps what it prints, and ends all that it leaves behind."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection, forkserver
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from fedbench.errors import UserError, summary_of, text_of, traceback_of
from fedbench.processes import process_tree

FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # which the caller handles
TO_TRACE, TO_END = 0.3, 2.0  # seconds that a worker has at its deadline to print its stack, and to end by itself
TO_JOIN = 30.0  # seconds that threads have to end after the function has returned
EVERY, SHARE = 0.1, 0.05  # seconds between two looks at the memory, and the part of a core that they may take
KEPT = 2**15  # bytes that are kept of the beginning and of the end of what is printed

Tell = Callable[[dict[str, Any]], None]


def guard(job: str, line: Connection, events: Connection) -> NoReturn:
    """The life of a guard.

    Args:
        job: JSON list of function, argument, timeout, memory limit, working folder and environment.
        line: takes seconds of grace as JSON, after which the worker is killed that is asked to end now. It gives one
            JSON object at the end, see `supervisor.End`.
        events: for the worker.
    """
    code = 1
    try:
        os.setsid()
        for number in FROM_OUTSIDE:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FROM_OUTSIDE)
        process_tree.adopt_orphans()
        _hide_server()
        report = _Guard(job, line, events).watch()
        with suppress(OSError):  # the caller was killed
            line.send_bytes(json.dumps(report).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        process_tree.end_descendants()
        os._exit(code)


class _Guard:
    """A worker that is forked and watched."""

    def __init__(self, job: str, line: Connection, events: Connection) -> None:
        function, argument, timeout, self.memory_limit, folder, environment = json.loads(job)
        self.line: Connection | None = line
        self.wake, ended = os.pipe()
        os.set_blocking(ended, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ended)
        self.output, voice = os.pipe()
        os.set_blocking(self.output, False)
        self.head, self.tail, self.size, self.is_open = b"", b"", 0, True
        own = os.getpid()
        self.worker = os.fork()
        if self.worker == 0:
            signal.set_wakeup_fd(-1)
            line.close()
            for fd in (self.wake, ended, self.output):
                os.close(fd)
            _work(own, function, argument, folder, environment, events, voice)
        events.close()
        os.close(voice)
        self.asked, self.late, self.look_at = False, False, 0.0
        self.memory: int | None = None
        self.due: list[tuple[float, signal.Signals]] = []  # which signal the worker gets when
        if timeout is not None:
            self._schedule(timeout, signal.SIGUSR1)
            self._schedule(timeout + TO_TRACE, signal.SIGTERM)
            self._schedule(timeout + TO_TRACE + TO_END, signal.SIGKILL)

    def _schedule(self, seconds: float, number: signal.Signals) -> None:
        self.due.append((time.monotonic() + seconds, number))

    def watch(self) -> dict[str, Any]:
        """Until the worker has ended, and all that it started: what the caller is to know."""
        while True:
            ready = connection.wait(
                [self.wake, *([self.line] if self.line else []), *([self.output] if self.is_open else [])],
                self._patience(),
            )
            if self.wake in ready:  # emptied before the look at the worker, so that no end is missed
                os.read(self.wake, 2**10)
            if self.line in ready:
                self._heed()
            if self.output in ready:
                self._read()
            self._hold_limits()
            pid, status = os.waitpid(self.worker, os.WNOHANG)
            if pid:
                break
        process_tree.end_descendants()
        while self._read():
            pass
        left_out = self.size - len(self.head) - len(self.tail)
        between = f"\n... {left_out:,} bytes left out ...\n".encode() if left_out else b""
        output = (self.head + between + self.tail).decode(errors="replace")
        code = os.waitstatus_to_exitcode(status)
        return {"code": code, "late": self.late, "memory": self.memory, "output": output}

    def _patience(self) -> float | None:
        times = [when for when, _ in self.due[:1]] + ([self.look_at] if self.memory_limit else [])
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _heed(self) -> None:
        """What the caller asks; it wants no worker any more where it is gone."""
        assert self.line is not None
        try:
            grace = float(json.loads(self.line.recv_bytes()))
        except (EOFError, OSError):
            grace, self.line = 0.0, None
        if grace and (self.late or self.asked):
            return
        self.asked, self.due = True, []
        if grace:
            self._schedule(0.0, signal.SIGTERM)
        self._schedule(grace, signal.SIGKILL)

    def _hold_limits(self) -> None:
        while self.due and self.due[0][0] <= time.monotonic():
            _, number = self.due.pop(0)
            self.late |= number == signal.SIGUSR1
            os.kill(self.worker, number)
        if self.memory_limit and time.monotonic() >= self.look_at:
            began = time.process_time()
            if (taken := process_tree.memory_of_descendants(at_least=self.memory_limit)) > self.memory_limit:
                self.memory = taken
                os.kill(self.worker, signal.SIGKILL)
            self.look_at = time.monotonic() + max(EVERY, (time.process_time() - began) / SHARE)

    def _read(self) -> bool:
        """Keep what is printed, at most 64 KiB at a time; whether there was anything."""
        try:
            more = os.read(self.output, 2**16)
        except BlockingIOError:
            return False
        self.is_open = bool(more)
        self.size += len(more)
        room = KEPT - len(self.head)
        self.head += more[:room]
        self.tail = (self.tail + more[room:])[-KEPT:]
        return self.is_open


def _work(
    guard: int,
    function: str,
    argument: Any,
    folder: str,
    environment: dict[str, str],
    events: Connection,
    voice: int,
) -> NoReturn:
    """The life of a worker: whatever happens, it ends here."""
    code = 1

    def tell(event: dict[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        while line:
            line = line[os.write(events.fileno(), line) :]

    try:
        process_tree.end_with_parent()
        if os.getppid() != guard:  # it was killed before this could hear of it
            os._exit(code)
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _print_to(voice)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        module, _, name = function.partition(":")
        tell({"event": "answer", "result": getattr(importlib.import_module(module), name)(argument, tell)})
        join_threads()
        code = 0
    except UserError as error:
        tell({"event": "answer", "user_error": True, "reason": text_of(error), "option": error.option})
    except BaseException as error:  # SystemExit and KeyboardInterrupt too
        tell({"event": "answer", "reason": f"raised {summary_of(error)}", "traceback": traceback_of(error)})
    finally:
        with suppress(Exception):  # third-party code may have put something else in their place
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _print_to(voice: int) -> None:
    """Make a pipe stdout and stderr, of this process and of those that it starts."""
    os.dup2(voice, 1)
    os.dup2(voice, 2)
    os.close(voice)
    sys.stdout, sys.stderr = (
        open(fd, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 - open to the end
        for fd in (1, 2)
    )
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)


def _hide_server() -> None:
    """Every process that a server has forked holds the pipe by which it knows that its caller lives. Writing into that
    would end it, and all other workers with it."""
    fd = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if fd is not None:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, fd)
        os.close(nothing)


def join_threads() -> None:
    """As Python does at its end: a tracker may have something to send yet."""
    until = time.monotonic() + TO_JOIN
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
