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
from fedbench.results.columns import ENDED, INTERRUPTED
from fedbench.results.files import believed_manifest
from fedbench.results.index import INDEX
from fedbench.results.packed_tables import suite_folder_of
from fedbench.runner.local import GRACE, Local, OnEvent
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.provenance import other_versions

APPEARS = 15.0  # seconds in which a file that another machine wrote must be seen here
ENDING = GRACE + 10.0  # seconds that cells elsewhere have to end when they are asked to, before they are killed
POLL = 0.5  # seconds between two looks
REACH = 10.0  # seconds
RESULT = ("status", "reason", "seconds")  # what is reported of the end of a cell


def compute(job: str, limits: Mapping[str, Any]) -> str:
    """What runs on another machine: computes one cell into the shared folder, by the executor `local` there.

    SIGINT, SIGTERM and SIGUSR2, by which Slurm says that time is over, let the cell end after its round.

    Args:
        job: a `CellJob` as a JSON string.
        limits: of the executor `local`.

    Returns:
        `status`, `reason` and `seconds` as JSON.

    Raises:
        UserError: where the folder is not the run's, or where versions differ.
    """
    end = dict[str, Any]()
    _check_machine(CellJob.from_json(job))
    execute = Local(workers=1, **limits)

    def on_event(event: dict[str, Any]) -> bool:
        if event["event"] == "ended":
            end.update({key: event.get(key) for key in RESULT})
        return True

    before = signal.signal(signal.SIGUSR2, lambda *_: execute.stop())
    try:
        with suppress(KeyboardInterrupt):
            execute([job], on_event)
    finally:
        signal.signal(signal.SIGUSR2, before or signal.SIG_DFL)
    return json.dumps(end)


def _check_machine(job: CellJob) -> None:
    until, index = time.monotonic() + APPEARS, suite_folder_of(job.folder) / INDEX
    while not index.is_file():
        if time.monotonic() > until:
            raise UserError(
                f"{platform.node()}: the results folder is not the one of the run: no {index} here. "
                "All machines must see it under one path; where they share nothing, use --shard and merge."
            )
        time.sleep(POLL)
    if differ := other_versions(job.manifest, Registry(job.plugins)):
        raise UserError(f"{platform.node()}: other versions than where the run was started: {differ}")


class Cluster(Protocol):
    """Where `compute` is called. A task is whatever the cluster has for one call."""

    def room(self) -> int:
        """How many tasks may be submitted or at work at a time. Raises: UserError where none may."""

    def submit(self, jobs: Sequence[str]) -> Sequence[Any]:
        """A task for each job."""

    def ended(self, tasks: Sequence[Any]) -> Sequence[Any]:
        """Those that have ended. Raises: UserError where nothing can run there."""

    def fault(self, task: Any) -> str:
        """What is known of a task that left its cell undone."""

    def cancel(self, task: Any, at_once: bool) -> None:
        """Ask a task to end, or kill it. One that has not begun is withdrawn."""


@dataclass
class _Task:
    """A cell that was submitted.

    Attributes:
        handle: the cluster's.
        before: the manifest of an earlier run.
    """

    job: CellJob
    handle: Any
    before: Mapping[str, Any] | None
    started: bool = False


class Dispatch:
    """One call of an executor whose cells run on a cluster.

    Args:
        cluster: where they run.
        on_event: as of every executor.
        cpus: of a cell, so many processes compute it.
        gpu: the share of a GPU that it asks for; without one it is computed on CPUs.
    """

    def __init__(self, cluster: Cluster, on_event: OnEvent, cpus: int, gpu: float) -> None:
        self.cluster, self.on_event = cluster, on_event
        self.changes: dict[str, Any] = {"processes": cpus} | ({} if gpu else {"device": "cpu"})
        self.going = True
        self.tasks: list[_Task] = []

    def run(self, jobs: Iterable[str]) -> None:
        """Compute all jobs. A cell whose machine is lost ends as interrupted, and the next run resumes it."""
        waiting = iter(jobs)
        try:
            while self._submit(waiting):
                self._look()
        except BaseException:  # the run is interrupted: cells may finish their round, for at most ENDING
            self.going, until = False, time.monotonic() + ENDING
            self._cancel(at_once=False)
            for task in self.tasks:
                if task.started:
                    self._report(task, {"event": "stopping", "seconds": GRACE})
            while self.tasks and time.monotonic() < until:
                self._look()
            raise
        finally:
            self._cancel(at_once=True)

    def _submit(self, waiting: Iterator[str]) -> bool:
        """Submit as many jobs as there is room for; whether any is at work."""
        room = self.cluster.room() - len(self.tasks) if self.going else 0
        jobs = [replace(CellJob.from_json(job), **self.changes) for job in islice(waiting, max(0, room))]
        before = [believed_manifest(job.folder) for job in jobs]
        handles = self.cluster.submit([job.to_json() for job in jobs]) if jobs else []
        self.tasks += map(_Task, jobs, handles, before)
        return bool(self.tasks)

    def _look(self) -> None:
        """Wait a moment, and report what has begun and ended."""
        time.sleep(POLL)
        ended = self.cluster.ended([task.handle for task in self.tasks])
        for task in list(self.tasks):
            if not task.started and (task.handle in ended or believed_manifest(task.job.folder) != task.before):
                task.started = True
                self._report(task, {"event": "started"})
            if task.handle in ended:
                self.tasks.remove(task)
                self._report(task, {"event": "ended", **self._end(task)})
            elif not self.going and not task.started:
                self.cluster.cancel(task.handle, at_once=True)

    def _end(self, task: _Task) -> dict[str, Any]:
        """How a cell ended, by its manifest, which may be visible here a while after its task has ended."""
        fault, until = self.cluster.fault(task.handle), time.monotonic() + APPEARS
        while True:
            manifest = believed_manifest(task.job.folder)
            if manifest and manifest != task.before and manifest["status"] in (*ENDED, INTERRUPTED):
                return {key: manifest.get(key) for key in RESULT}
            if fault or time.monotonic() > until:
                why = f"its machine or its job was lost ({fault or 'nothing is known'}); the next run computes it"
                return {"status": INTERRUPTED, "reason": why, "seconds": None}
            time.sleep(POLL)

    def _cancel(self, at_once: bool) -> None:
        for task in self.tasks:
            self.cluster.cancel(task.handle, at_once=at_once)

    def _report(self, task: _Task, event: dict[str, Any]) -> None:
        self.going = self.on_event({**event, "folder": str(task.job.folder)}) and self.going


def variables() -> dict[str, str]:
    """The environment variables of this process that hold on other machines too."""
    return {name: value for name, value in os.environ.items() if name.startswith("FEDBENCH_")}


def library(name: str, extra: str) -> Any:
    """A package that an executor needs. Raises: UserError where it is not installed."""
    try:
        with unchanged():
            return importlib.import_module(name)
    except ImportError as error:
        install = f"pip install 'fedbench-heft[{extra}]' installs it"
        raise UserError(f"--executor {extra}: it needs the package {name} ({error}); {install}") from None


def check_reachable(address: str, problem: str) -> None:
    """Raises: UserError, beginning with the problem, where nothing listens at HOST:PORT."""
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
