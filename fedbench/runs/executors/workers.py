"""A worker process as the run sees it: started, listened to, asked to end, and told of once it has ended."""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from types import ModuleType
from typing import Any

from fedbench.cell.events import Listener
from fedbench.cell.order import Order
from fedbench.errors import UserError
from fedbench.results import read_manifest
from fedbench.runs.executors import trees
from fedbench.runs.executors.environment import NOT_FROM_HERE, ONE_THREAD, environment, unless_set
from fedbench.runs.executors.supervisor import END, FROM_OUTSIDE, STOP, TRACE, supervise

LOADING = 600.0  # seconds that the server may take to import torch and timm; a cell's own time counts from then
TO_TRACE = 0.3  # seconds for a cell to print its stack
LAST = 6.0  # seconds for a supervisor to end what it watches over
UNWATCHED = "the process that watches over the cell was killed"
PATIENCE = 0.2  # seconds at most between two looks at the clock, and at what the run was asked


def start_server() -> None:
    """Start the process that workers are forked from, with torch loaded and one thread; it is not to hear Ctrl-C,
    nor what a scheduler sends to every process of a job."""
    forkserver.set_forkserver_preload(["fedbench.runs.executors.preloaded"])
    with environment(unless_set(ONE_THREAD | NOT_FROM_HERE)):
        resource_tracker.ensure_running()  # by itself, because it unblocks signals for whoever starts after it
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FROM_OUTSIDE)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def no_script() -> Iterator[None]:
    """Hide the user's script while a worker starts: multiprocessing would run it again, `fedbench.run` and all."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


class Worker:
    """A cell's supervisor and the pipes to it, see `fedbench.runs.executors.supervisor`; where cells may be computed in
    turn, that of one after the other.

    used: its process has computed a cell before this one · asked: what it was asked last, if anything · ready: its own
    time has begun · late: it was out of it · round: the last one that was finished · broke: what went wrong, where its
    manifest does not say so · unsure: how it failed, where its process is used · before: the manifest of an earlier
    run, if any · told: the last word of its supervisor · telling: whether there may be one yet.
    """

    def __init__(self, job: str, memory_limit: int | None) -> None:
        context = multiprocessing.get_context("forkserver")
        self.used, self.telling = False, True
        self._begin(job)
        receive, send = context.Pipe(duplex=False)
        self.line, far = context.Pipe()
        self.process = context.Process(target=supervise, args=(job, send, far, memory_limit))
        try:
            with no_script():
                self.process.start()
        except (EOFError, ConnectionError) as error:
            raise UserError(
                "no worker process can be started: their server ended before it had loaded torch. "
                "The system does that when memory runs out; `fedbench doctor` says whether torch loads at all"
            ) from error
        send.close()
        far.close()
        self.events = Listener(receive)

    def _begin(self, job: str) -> None:
        self.order = Order.from_json(job)
        self.folder = self.order.folder
        self.before = read_manifest(self.folder)
        self.asked: bytes | None = None
        self.ready, self.late, self.round = False, False, 0
        self.broke: dict[str, Any] = {}
        self.unsure: str | None = None
        self.told: dict[str, Any] | None = None
        self.began = time.monotonic()
        self.deadline = self.began + LOADING

    def take(self, job: str) -> None:
        """Have its process compute another cell, after one that has ended; see `free`."""
        self.used = True
        self._begin(job)
        with suppress(OSError):  # it has ended meanwhile
            self.line.send_bytes(job.encode())

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return not self.process.is_alive()

    @property
    def free(self) -> bool:
        """Whether its cell has ended, and its process can take another."""
        if self.told is None and self.telling:
            try:
                if self.line.poll():
                    self.told = json.loads(self.line.recv_bytes())
            except (EOFError, OSError):  # somebody killed the supervisor
                self.telling = False
        return self.told is not None and self.told["code"] is None

    @property
    def ended(self) -> bool:
        """Whether its cell has ended."""
        return self.free or self.gone

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def heard(self, timeout: float | None = None) -> list[dict[str, Any]]:
        """What it has told since the last call. timeout: seconds it has from when it is ready."""
        events = self.events.remaining() if self.free else self.events.heard() if self.events.open else []
        for event in events:
            if event["event"] == "ready" and not self.ready:
                self.ready, self.began = True, time.monotonic()
                if not self.asked:
                    self.deadline = self.began + (timeout or float("inf"))
            elif event["event"] == "round":
                self.round = event["round"]
            elif event["event"] == "broke":
                self.broke = event
            elif event["event"] == "unsure":
                self.unsure = event["reason"]
        return events

    def stop(self, grace: float) -> None:
        """Ask it to end within `grace` seconds."""
        self._ask(STOP, grace)

    def out_of_time(self, grace: float) -> None:
        """The next step at a deadline: to say where it is, to end, to be killed, and its supervisor at last."""
        if self.asked is None:
            self.late = True
            self._ask(TRACE, TO_TRACE)
        elif self.asked == TRACE:
            self._ask(STOP, grace)
        elif self.asked == STOP:
            self.end()
        elif self.process.pid:
            trees.end_tree(self.process.pid)
            self.process.join(LAST)

    def end(self) -> None:
        """Kill it with everything it has started; it is gone soon after."""
        if self.asked != END:
            self._ask(END, LAST)

    def _ask(self, what: bytes, seconds: float) -> None:
        self.asked, self.deadline = what, time.monotonic() + seconds
        with suppress(OSError):  # it has ended meanwhile
            self.line.send_bytes(what)

    def report(self) -> dict[str, Any]:
        """The last word of its supervisor; where somebody killed that, or its guard, what is known of it."""
        if self.free or self.told:
            return self.told or {}
        with suppress(EOFError, OSError):
            self.line.send_bytes(END)
            self.line.poll(LAST)
        return {"code": self.process.exitcode, "memory": None, "traceback": None, "reason": UNWATCHED}

    def close(self) -> None:
        """Let go of it; a supervisor that is still there, its server killed, ends the cell then."""
        self.line.close()
        self.events.close()


def stirring(workers: Sequence[Worker]) -> list[Worker]:
    """Those that have something to say, have ended, or are out of time; waits a moment for one."""
    ends = {worker.process.sentinel: worker for worker in workers}
    voices = [worker.events.pipe for worker in workers if worker.events.open]
    voices += [worker.line for worker in workers if worker.told is None and worker.telling]
    ready = set(wait([*voices, *ends], max(0.0, min([PATIENCE, *(w.deadline - time.monotonic() for w in workers)]))))
    late = time.monotonic()
    return [w for w in workers if ready & {w.events.pipe, w.line, w.process.sentinel} or w.deadline < late]
