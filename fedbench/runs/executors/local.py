"""Cells side by side on this machine: a process a cell, or one for small cells in turn; a thread a process, forked from
a server with torch loaded."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fedbench import hookimpl
from fedbench.cell.order import Order
from fedbench.runs.executors import OnEvent
from fedbench.runs.executors.ending import outcome, unsure
from fedbench.runs.executors.signals import counted
from fedbench.runs.executors.workers import Worker, start_server, stirring

GRACE = 10.0  # seconds a worker has to finish its round and write a checkpoint, once the run is asked to end
LATE = 2.0  # seconds it has once it is out of time


def local(workers: int = 1, timeout: float | None = None, memory_limit: int | None = None) -> Local:
    """Run cells in `workers` processes on this machine.

    timeout: seconds after which a cell is ended, with everything it started · memory_limit: bytes that its processes
    may take together.
    """
    return Local(workers, timeout, memory_limit)


class Local:
    """`execute(jobs, on_event)`, which can be asked to stop.

    In the main thread SIGINT, SIGTERM and SIGHUP do so, and `stop()` from any. Running cells then finish their round
    and keep a checkpoint, no others start, and Interrupted is raised once they have ended; asked twice, it ends them
    at once. An answer of False from `on_event` starts no more cells, and leaves running ones alone.
    """

    def __init__(self, workers: int, timeout: float | None, memory_limit: int | None) -> None:
        self.workers, self.timeout, self.memory_limit = workers, timeout, memory_limit
        self.asked: list[int] = []  # the signals, in the order in which they came

    def __call__(self, jobs: Iterable[str], on_event: OnEvent) -> None:
        start_server()
        with counted(self.asked):
            _Execution(self, jobs, on_event).run()

    def stop(self) -> None:
        """What a SIGTERM does; called before the cells, it keeps them from starting."""
        self.asked.append(signal.SIGTERM)


class _Execution:
    """One call of an executor: the cells that are at work, and processes that could take another, or are about to
    end."""

    def __init__(self, limits: Local, jobs: Iterable[str], on_event: OnEvent) -> None:
        self.limits, self.jobs, self.on_event = limits, iter(jobs), on_event
        self.going = True
        self.running: list[Worker] = []
        self.free: list[Worker] = []
        self.leaving: list[Worker] = []

    def run(self) -> None:
        try:
            while True:
                if self.limits.asked:
                    self._stop(at_once=len(self.limits.asked) > 1)
                while self._has_room() and (job := next(self.jobs, None)):
                    self._start(job)
                self._let_go()
                if not self.running:
                    break
                for worker in stirring(self.running):
                    self._attend(worker)
        finally:
            self.leaving += self.running
            self._let_go(LATE)

    def _has_room(self) -> bool:
        return self.going and not self.limits.asked and len(self.running) < self.limits.workers

    def _stop(self, at_once: bool) -> None:
        for worker in self.running:
            if at_once:
                worker.end()
            elif worker.asked is None:
                worker.stop(GRACE)
                self._tell(worker, {"event": "stopping", "seconds": GRACE})

    def _start(self, job: str) -> None:
        """In a process that is free for such a cell, or in a new one."""
        turn = Order.from_json(job).turn
        worker = next((worker for worker in self.free if worker.order.turn == turn), None)
        if worker:
            self.free.remove(worker)
            worker.take(job)
        else:
            self._let_go()
            worker = Worker(job, self.limits.memory_limit)
        self.running.append(worker)
        self._tell(worker, {"event": "started"})

    def _let_go(self, patience: float = 0.0) -> None:
        """End processes that are free or through, and wait so many seconds for each."""
        self.leaving += self.free
        self.free = []
        for worker in self.leaving:
            worker.end()
        for worker in list(self.leaving):
            worker.process.join(patience)
            if patience or worker.gone:
                worker.close()
                self.leaving.remove(worker)

    def _attend(self, worker: Worker) -> None:
        ended = worker.ended  # asked first: what it said before its end is heard now
        for event in worker.heard(self.limits.timeout):
            self._tell(worker, event)
        if ended:
            self._close(worker)
        elif time.monotonic() > worker.deadline:
            worker.out_of_time(LATE)

    def _close(self, worker: Worker) -> None:
        """Say how a cell ended, unless it is to be computed again."""
        self.running.remove(worker)
        if worker.free and worker.asked is None:
            self.free.append(worker)
        else:
            self.leaving.append(worker)
        if (reason := unsure(worker)) is None:
            end = outcome(worker, self.limits.timeout, self.limits.memory_limit)
            self._tell(worker, {"event": "ended", **end})
        elif self.limits.asked:
            told = "its process ended before it was done; the next run goes on"
            end = {"status": "interrupted", "reason": told, "seconds": round(worker.seconds, 3)}
            self._tell(worker, {"event": "ended", **end})
        else:
            self._tell(worker, {"event": "again", "reason": reason})
            anew = replace(worker.order, turn=None, fresh=True)
            self.running.append(Worker(anew.to_json(), self.limits.memory_limit))

    def _tell(self, worker: Worker, event: dict[str, Any]) -> None:
        self.going = self.on_event({**event, "folder": str(worker.folder)}) and self.going


@hookimpl
def fedbench_register_executors(register):
    register("local", local)
