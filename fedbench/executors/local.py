"""Cells side by side on this machine: a process a cell, a thread a process, forked from a server with torch loaded."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from fedbench import hookimpl
from fedbench.results import read_manifest, write_manifest
from fedbench.results.claims import is_held

# Libraries read these when they are loaded, which happens in the server.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
GRACE = 2.0  # seconds between asking a worker to end and ending it
LOADING = 600.0  # seconds that the server may take to import torch and timm; a cell's own time counts from then

OnEvent = Callable[[dict[str, Any]], bool]


@dataclass
class _Running:
    job: str
    folder: Path
    process: BaseProcess
    events: Connection
    before: dict[str, Any] | None  # the manifest of an earlier run, if any
    deadline: float
    began: float = field(default_factory=time.monotonic)


def local(workers: int = 1, timeout: float | None = None) -> Callable[[Iterable[str], OnEvent], None]:
    """Run cells in `workers` processes on this machine.

    timeout: seconds after which a cell is ended, with everything it started.
    """

    def execute(jobs: Iterable[str], on_event: OnEvent) -> None:
        context = multiprocessing.get_context("forkserver")
        _start_server()
        waiting, running, going = iter(jobs), [], True
        try:
            while True:
                while going and len(running) < workers and (job := next(waiting, None)):
                    running.append(_start(context, job))
                    going = on_event({"event": "started", "folder": str(running[-1].folder)})
                if not running:
                    break
                for one in _wait(running):
                    for event in _received(one):
                        if event["event"] == "ready":
                            one.began = time.monotonic()
                            one.deadline = one.began + (timeout or float("inf"))
                        on_event({**event, "folder": str(one.folder)})
                    if not one.process.is_alive() or time.monotonic() > one.deadline:
                        running.remove(one)
                        going = (
                            on_event({"event": "ended", "folder": str(one.folder), **_outcome(one, timeout)}) and going
                        )
        finally:
            for one in running:
                _end(one.process)

    return execute


def _start_server() -> None:
    """Start the process that workers are forked from, with torch loaded and one thread."""
    forkserver.set_forkserver_preload(["fedbench.worker"])
    before = dict(os.environ)
    os.environ.update({name: os.environ.get(name, value) for name, value in ONE_THREAD.items()})
    try:
        forkserver.ensure_running()
    finally:
        for name in ONE_THREAD.keys() - before.keys():
            del os.environ[name]


@contextmanager
def _no_script() -> Iterator[None]:
    """Hide the user's script while a worker starts: multiprocessing would run it again, `fedbench.run` and all."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _start(context: Any, job: str) -> _Running:
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, send))
    folder = Path(json.loads(job)["folder"])
    before = read_manifest(folder)
    with _no_script():
        process.start()
    send.close()
    return _Running(job, folder, process, receive, before, time.monotonic() + LOADING)


def _work(job: str, events: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    from fedbench import worker

    worker.main(job, events)


def _wait(running: Sequence[_Running]) -> Sequence[_Running]:
    """Those that have something to say, have ended, or are out of time."""
    soonest = min((one.deadline for one in running), default=float("inf"))
    patience = max(0.0, min(soonest - time.monotonic(), 1.0))
    ready = set(wait([one.events for one in running] + [one.process.sentinel for one in running], patience))
    late = time.monotonic()
    return [one for one in running if one.events in ready or one.process.sentinel in ready or one.deadline < late]


def _received(one: _Running) -> Sequence[dict[str, Any]]:
    """What a worker has said. Its pipe carries JSON: reading what a plugin's code may have written runs nothing."""
    events = []
    with suppress(EOFError, OSError, ValueError):
        while one.events.poll():
            events.append(json.loads(one.events.recv_bytes()))
    if one.process.exitcode is None and not events:
        one.process.join(0.05)  # the pipe is closed just before the process ends
    return events


def _outcome(one: _Running, timeout: float | None) -> dict[str, Any]:
    """The last manifest of a worker that ended; where it could not write one, this process does."""
    late = one.process.is_alive()
    _end(one.process)
    manifest, job = read_manifest(one.folder), json.loads(one.job)
    if manifest is None or manifest == one.before:
        manifest = {**job["manifest"], "status": "running"}
    undone = ("running", "interrupted") if late else ("running",)  # at its deadline a cell is asked to end first
    if manifest["status"] in undone and is_held(job.get("claim")):  # else the cell is another run's
        reason = _reason(one.process.exitcode, timeout if late else None)
        seconds = round(time.monotonic() - one.began, 3)
        manifest = {**manifest, "status": "timeout" if late else "failed", "reason": reason, "seconds": seconds}
        write_manifest(one.folder, manifest)
    return {"status": manifest["status"], "reason": manifest.get("reason"), "seconds": manifest.get("seconds")}


def _reason(code: int | None, timeout: float | None) -> str:
    if timeout:
        return f"not done after {timeout:g} seconds"
    if code is None or code >= 0:
        return f"the worker process ended with exit code {code} before it was done"
    reason = f"the worker process was ended by {signal.Signals(-code).name}"
    return f"{reason}; the system does that when memory runs out" if -code == signal.SIGKILL else reason


def _end(process: BaseProcess) -> None:
    """End a worker and everything in its process group."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        if process.is_alive():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)  # it may not have its own group yet
            process.join(patience)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # what it has left behind


@hookimpl
def fedbench_register_executors(register):
    register("local", local)
