"""Cells on other machines that share the results folder: what runs there, and the loop of the run here."""

from __future__ import annotations

import importlib
import json
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.results.columns import ENDED, INTERRUPTED
from fedbench.results.index import INDEX
from fedbench.results.store import suite_folder_of
from fedbench.runner.cells import versions_of
from fedbench.runner.local import GRACE, OnEvent, local
from fedbench.simulation.cell_job import CellJob

APPEARS = 15.0  # seconds in which a file that another machine wrote must be seen here
ENDING = GRACE + 10.0  # seconds that cells elsewhere have to end when they are asked to, before they are killed
POLL = 0.5  # seconds between two looks
REACH = 10.0  # seconds


def compute(job: str, limits: Mapping[str, Any]) -> str:
    """What runs on another machine: computes one cell into the shared folder, by the executor `local` there.

    SIGINT, SIGTERM and SIGUSR2, by which Slurm says that time is over, let the cell end after its round.

    Args:
        job: an `CellJob` as a JSON string.
        limits: of the executor `local`.

    Returns: `status`, `reason` and `seconds` as JSON. Raises: UserError where the folder is not the run's, or where
    versions differ.
    """
    order, end = CellJob.from_json(job), dict[str, Any]()
    _check_machine(order)
    execute = local(workers=1, **limits)

    def on_event(event: dict[str, Any]) -> bool:
        if event["event"] == "ended":
            end.update({key: event.get(key) for key in ("status", "reason", "seconds")})
        return True

    before = signal.signal(signal.SIGUSR2, lambda *_: execute.stop())
    try:
        with suppress(KeyboardInterrupt):
            execute([job], on_event)
    finally:
        signal.signal(signal.SIGUSR2, before or signal.SIG_DFL)
    return json.dumps(end)


def _check_machine(order: CellJob) -> None:
    until, index = time.monotonic() + APPEARS, suite_folder_of(order.folder) / INDEX
    while not index.is_file():
        if time.monotonic() > until:
            raise UserError(
                f"{platform.node()}: the results folder is not the one of the run: no {index} here. "
                "All machines must see it under one path; where they share nothing, use --shard and merge."
            )
        time.sleep(POLL)
    here = versions_of(order.manifest["config"], Registry(order.plugins))
    differ = [
        f"{name} is {here.get(name)}, not {version}"
        for name, version in order.manifest["versions"].items()
        if here.get(name) != version
    ]
    if differ:
        raise UserError(f"{platform.node()}: other versions than where the run was started: {', '.join(differ)}")


class Cluster(Protocol):
    """Where `compute` is called. A task is whatever stands for one call."""

    def room(self) -> int:
        """How many tasks may be submitted or at work at a time."""

    def submit(self, jobs: Sequence[str]) -> Sequence[Any]:
        """A task for each job."""

    def ended(self, tasks: Sequence[Any]) -> Sequence[Any]:
        """Those that have ended. Raises: UserError where nothing can run there."""

    def fault(self, task: Any) -> str:
        """What is known of a task that left its cell undone."""

    def cancel(self, task: Any, at_once: bool) -> None:
        """Ask a task to end, or kill it. One that has not begun is withdrawn."""


@dataclass
class _Sent:
    order: CellJob
    task: Any
    before: Mapping[str, Any] | None
    started: bool = False


class Dispatch:
    """One call of an executor.

    cluster: where cells run · changes: to every order, see `changes` · on_event: as of every executor.
    """

    def __init__(self, cluster: Cluster, changes: Mapping[str, Any], on_event: OnEvent) -> None:
        self.cluster, self.changes, self.on_event = cluster, changes, on_event
        self.going = True
        self.sent: list[_Sent] = []

    def run(self, jobs: Iterable[str]) -> None:
        """All jobs. A cell whose machine is lost ends as interrupted, and the next run resumes it."""
        waiting = iter(jobs)
        with self._stopping():
            while True:
                self._submit(waiting)
                if not self.sent:
                    break
                self._look()

    def _submit(self, waiting: Iterator[str]) -> None:
        room = self.cluster.room() - len(self.sent) if self.going else 0
        orders = [replace(CellJob.from_json(job), **self.changes) for job in islice(waiting, max(0, room))]
        before = [read_manifest(order.folder) for order in orders]
        tasks = self.cluster.submit([order.to_json() for order in orders]) if orders else []
        self.sent += map(_Sent, orders, tasks, before)

    def _look(self) -> None:
        """Wait a moment, and report what has begun and ended."""
        time.sleep(POLL)
        ended = self.cluster.ended([one.task for one in self.sent])
        for one in list(self.sent):
            if not one.started and (one.task in ended or read_manifest(one.order.folder) != one.before):
                self._start(one)
            if one.task in ended:
                self.sent.remove(one)
                self._tell(one, {"event": "ended", **self._end(one)})
            elif not self.going and not one.started:
                self.cluster.cancel(one.task, at_once=True)

    def _end(self, one: _Sent) -> dict[str, Any]:
        """How a cell ended, by its manifest, which may be seen here a while after its task has ended."""
        fault, until = self.cluster.fault(one.task), time.monotonic() + APPEARS
        while True:
            manifest = read_manifest(one.order.folder)
            if manifest and manifest != one.before and manifest["status"] in (*ENDED, INTERRUPTED):
                return {key: manifest.get(key) for key in ("status", "reason", "seconds")}
            if fault or time.monotonic() > until:
                why = f"its machine or its job was lost ({fault or 'nothing is known'}); the next run computes it"
                return {"status": INTERRUPTED, "reason": why, "seconds": None}
            time.sleep(POLL)

    def _start(self, one: _Sent) -> None:
        one.started = True
        self._tell(one, {"event": "started"})

    def _tell(self, one: _Sent, event: dict[str, Any]) -> None:
        self.going = self.on_event({**event, "folder": str(one.order.folder)}) and self.going

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Where the run is interrupted, let cells elsewhere finish their round, for at most `ENDING`."""
        try:
            yield
        except BaseException:
            self.going, until = False, time.monotonic() + ENDING
            try:
                for one in self.sent:
                    self.cluster.cancel(one.task, at_once=False)
                    if one.started:
                        self._tell(one, {"event": "stopping", "seconds": GRACE})
                while self.sent and time.monotonic() < until:
                    self._look()
            finally:
                for one in self.sent:
                    self.cluster.cancel(one.task, at_once=True)
            raise


def changes(gpu: float, cpus: int) -> dict[str, Any]:
    """What is other in an order elsewhere than in one here: as many processes as it has CPUs, and a GPU only if it
    asked for one."""
    return {"processes": cpus} | ({} if gpu else {"device": "cpu"})


def variables() -> dict[str, str]:
    """What of this process's environment holds on other machines too."""
    return {name: value for name, value in os.environ.items() if name.startswith("FEDBENCH_")}


def library(name: str, extra: str) -> Any:
    """A package that an executor needs. Raises: UserError where it is not installed."""
    try:
        with unchanged():
            return importlib.import_module(name)
    except ImportError as error:
        install = f"pip install 'fedbench[{extra}]' installs it"
        raise UserError(f"--executor {extra}: it needs the package {name} ({error}); {install}") from None


def check_reachable(address: str, problem: str) -> None:
    """Raises: UserError, beginning with the problem, where nobody listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"{problem} {address!r} ({error}); expected HOST:PORT or auto") from None


@contextmanager
def unchanged(values: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """The environment and the handlers of signals are afterwards what they were; within, these variables are set."""
    before = dict(os.environ)
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
