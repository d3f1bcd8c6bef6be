"""The process between a run and a cell: passes on what the run asks, keeps what the cell prints, ends what it left.

Everything that a cell starts stays below its supervisor. When the run is killed, the supervisor's line to it breaks,
and it ends the cell. When the supervisor is killed, a guard above it, which does nothing else, ends what was below; and
when the guard is killed, the run lets go of the line.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing import Pipe, forkserver
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from fedbench import machine
from fedbench.cell.events import Teller
from fedbench.cell.order import Order
from fedbench.errors import UserError
from fedbench.results.claims import is_held
from fedbench.runs.executors import trees
from fedbench.runs.executors.output import Output, traceback_in

STOP, TRACE, END = b"stop", b"trace", b"end"  # what a run may ask for; beside these, another job
DONE = b"done"  # what a cell's process says that could take another job
FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C and the like are the run's to handle
EVERY = 0.1  # seconds between two looks at the memory of a cell with a limit
SHARE = 0.05  # of a core, at most, for these looks: where thousands of processes run, they take longer


def supervise(job: str, events: Connection, line: Connection, memory_limit: int | None) -> None:
    """Start a supervisor, and collect what it leaves where somebody kills it; ends as it does.

    line: takes STOP (SIGTERM for the cell), TRACE (have it print where it is) and END (kill it), and gives one JSON
    object for each cell: `code` (exit code, or a signal's number below 0; None where its process can take another job,
    which the line then takes), `memory` (bytes, where they were above `memory_limit`), `traceback`.
    """
    for number in FROM_OUTSIDE:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FROM_OUTSIDE)
    os.setsid()
    trees.adopt_orphans()
    supervisor = os.fork()
    if supervisor == 0:
        _be_the_supervisor(job, events, line, memory_limit)
    events.close()
    line.close()
    _, status = os.waitpid(supervisor, 0)
    trees.end_descendants()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # of SIGKILL, which has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _be_the_supervisor(job: str, events: Connection, line: Connection, memory_limit: int | None) -> NoReturn:
    """The life of a supervisor: whatever happens, it ends here."""
    code = 1
    try:
        trees.adopt_orphans()
        _supervise(job, events, line, memory_limit)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _supervise(job: str, events: Connection, line: Connection, memory_limit: int | None) -> None:
    """Start a cell, watch it to its end, and report that to the run; and those that its process computes after it."""
    wake, ended = os.pipe()
    os.set_blocking(ended, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended)
    said, voice = os.pipe()
    turns, far = Pipe()
    cell = os.fork()
    if cell == 0:
        signal.set_wakeup_fd(-1)
        line.close()
        turns.close()
        for own in (wake, ended, said):
            os.close(own)
        _be_the_cell(job, events, voice, far)
    events.close()
    far.close()
    os.close(voice)
    watched = _Watched(job, cell, line, Output(said), turns)
    code, memory = watched.to_its_end(wake, memory_limit)
    trees.end_descendants()
    watched.report(code, memory)


class _Watched:
    """The process of a cell, and the cell that it is at; job: None where it waits for another."""

    def __init__(self, job: str, cell: int, line: Connection, output: Output, turns: Connection) -> None:
        self.job: str | None = job
        self.cell, self.line, self.output, self.turns = cell, line, output, turns

    def to_its_end(self, wake: int, memory_limit: int | None) -> tuple[int, int | None]:
        """Until the process has ended: its exit code, and the memory it took where that was too much."""
        memory, due = None, 0.0
        while True:
            patience = max(0.0, due - time.monotonic()) if memory_limit else None
            voices: list[Any] = [self.line, wake]
            voices += [self.output.pipe] if self.output.open else []
            voices += [] if self.turns.closed else [self.turns]
            ready = wait(voices, patience)
            if self.line in ready:
                self._heed()
            if self.output.pipe in ready:
                self.output.read()
            if self.turns in ready:
                self._may_go_on()
            if wake in ready:
                os.read(wake, 2**10)
            if memory_limit and time.monotonic() >= due:
                began = time.process_time()
                if (taken := trees.memory(at_least=memory_limit)) > memory_limit:
                    memory = taken
                    os.kill(self.cell, signal.SIGKILL)
                due = time.monotonic() + max(EVERY, (time.process_time() - began) / SHARE)
            pid, status = os.waitpid(self.cell, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status), memory

    def _heed(self) -> None:
        try:
            asked = self.line.recv_bytes()
        except (EOFError, OSError):  # the run was killed
            asked = END
        if asked.startswith(b"{"):
            self.job, self.output = asked.decode(), Output(self.output.pipe)
            with suppress(OSError):  # it has ended meanwhile
                self.turns.send_bytes(asked)
        else:
            os.kill(self.cell, {STOP: signal.SIGTERM, TRACE: signal.SIGUSR1, END: signal.SIGKILL}[asked])

    def _may_go_on(self) -> None:
        """The cell has ended and its process could take another: the run is told so. One that has left something
        running is to end instead."""
        with suppress(EOFError, OSError):
            said = self.turns.recv_bytes()
            if said == DONE and machine.children(os.getpid()) == [self.cell]:
                self.report(None)
                self.job = None
                return
        self.turns.close()

    def report(self, code: int | None, memory: int | None = None) -> None:
        """Keep what the cell has printed, and tell the run how it ended; code: None where its process goes on."""
        while self.output.read():
            pass
        if self.job is not None:
            order = Order.from_json(self.job)
            if order.probe is None and is_held(order.claim):  # else the folder is another run's
                self.output.write(order.folder)
        report = {"code": code, "memory": memory, "traceback": traceback_in(self.output.text())}
        with suppress(OSError):  # the run was killed
            self.line.send_bytes(json.dumps(report).encode())


def _be_the_cell(job: str, events: Connection, voice: int, turns: Connection) -> NoReturn:
    """The life of a worker process: whatever happens, it ends here."""
    trees.end_with_parent()
    _hide_server()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(voice, 1)
    os.dup2(voice, 2)
    os.close(voice)
    sys.stdout, sys.stderr = (
        open(fd, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 - open to the end
        for fd in (1, 2)
    )
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    teller, code = Teller(events), 1
    try:
        from fedbench.cell import worker  # loaded by the server with torch, which the run itself does without

        worker.main(job, teller, lambda: _onward(turns))
        _join_threads()
        code = 0
    except UserError as error:  # not even its manifest could be written
        teller.tell({"event": "broke", "reason": str(error)})
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a plugin too
        reason = f"{type(error).__name__}: {error}"
        teller.tell({"event": "broke", "reason": reason, "traceback": traceback.format_exc()})
    finally:
        with suppress(Exception):  # a plugin may have put something else in their place
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _onward(turns: Connection) -> str | None:
    """Say that a cell has ended and that this process could take another; its job, or None."""
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    try:
        turns.send_bytes(DONE)
        return turns.recv_bytes().decode()
    except (EOFError, OSError):
        return None


def _hide_server() -> None:
    """Every process that a server has forked holds the pipe that tells it that the run lives. Writing into that would
    end it, and all other cells with it."""
    fd = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if fd is not None:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, fd)
        os.close(nothing)


def _join_threads() -> None:
    """As Python does at its end: a tracker may have something to send yet."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
