"""Cells side by side on this machine: one process a cell, one thread a process, forked from a server that has torch loaded."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedbench import hookimpl
from fedbench.results import read_manifest, write_manifest

# Libraries read these when they are loaded, which happens in the server.
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
GRACE = 2.0  # seconds between asking a worker to end and ending it

OnEvent = Callable[[dict[str, Any]], bool]


@dataclass
class _Running:
    job: str
    folder: Path
    process: BaseProcess
    events: Connection
    deadline: float


def local(workers: int = 1, timeout: float | None = None) -> Callable[[Sequence[str], OnEvent], None]:
    """Run cells in `workers` processes on this machine.

    timeout: seconds after which a cell is ended, with everything it started.
    """

    def execute(jobs: Sequence[str], on_event: OnEvent) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fedbench.worker"])
        os.environ.update({name: os.environ.get(name, value) for name, value in ONE_THREAD.items()})
        waiting, running, going = list(reversed(jobs)), [], True
        try:
            while running or (waiting and going):
                while going and waiting and len(running) < workers:
                    running.append(_start(context, waiting.pop(), timeout))
                    going = on_event({"event": "started", "folder": str(running[-1].folder)})
                for one in _wait(running):
                    for event in _received(one):
                        on_event({**event, "folder": str(one.folder)})
                    if not one.process.is_alive() or time.monotonic() > one.deadline:
                        running.remove(one)
                        going = on_event({"event": "ended", "folder": str(one.folder), **_outcome(one, timeout)}) and going
        finally:
            for one in running:
                _end(one.process)

    return execute


def _start(context: Any, job: str, timeout: float | None) -> _Running:
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, send))
    process.start()
    send.close()
    deadline = time.monotonic() + timeout if timeout else float("inf")
    return _Running(job, Path(json.loads(job)["folder"]), process, receive, deadline)


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
    return [
        one for one in running if one.events in ready or one.process.sentinel in ready or one.deadline < late
    ]


def _received(one: _Running) -> Sequence[dict[str, Any]]:
    events = []
    with suppress(EOFError, OSError):
        while one.events.poll():
            events.append(one.events.recv())
    if one.process.exitcode is None and not events:
        one.process.join(0.05)  # the pipe is closed just before the process ends
    return events


def _outcome(one: _Running, timeout: float | None) -> dict[str, Any]:
    """The last manifest of a worker that ended; where it could not write one, this process does."""
    late = one.process.is_alive()
    _end(one.process)
    code = one.process.exitcode
    manifest = read_manifest(one.folder) or {**json.loads(one.job)["manifest"], "status": "running"}
    if manifest["status"] == "running":
        reason = f"the worker process ended with exit code {code} before it was done"
        if late:
            reason = f"not done after {timeout:g} seconds"
        elif code is not None and code < 0:
            reason = f"the worker process was ended by {signal.Signals(-code).name}"
        manifest = {**manifest, "status": "timeout" if late else "failed", "reason": reason}
        write_manifest(one.folder, manifest)
    return {"status": manifest["status"], "reason": manifest.get("reason"), "seconds": manifest.get("seconds")}


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
