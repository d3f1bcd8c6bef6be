"""The executor `local`: every cell in a separate process on this machine, under the supervisor."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedbench import hookimpl
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.processes.signals import counted
from fedbench.processes.supervisor import Child, ChildFailed, name_of, wait
from fedbench.results import read_manifest, write_manifest
from fedbench.results.files import CHECKPOINT, believed_manifest
from fedbench.results.lock import HELD, Held, cell_lock
from fedbench.simulation.cell_job import CellJob, is_of_a_cell

OnEvent = Callable[[dict[str, Any]], bool]
Execute = Callable[[Iterable[str], OnEvent], None]

CELL = "fedbench.simulation.worker:compute"
OUTPUT = "output.txt"  # in a cell's folder: what it printed
GRACE = 10.0  # seconds a cell has to finish its round and write a checkpoint, once the run is asked to end
LOCK = 10.0  # seconds to wait for the lock of a cell whose process has ended: what it started may die a moment later


class Local:
    """Run cells in `workers` processes on this machine.

    In the main thread SIGINT, SIGTERM and SIGHUP ask it to stop, and `stop()` from any. Running cells then finish their
    round and keep a checkpoint, no others start, and Interrupted is raised once they have ended; asked twice, it ends
    them at once. An answer of False from `on_event` starts no more cells, and leaves running ones alone.

    Args:
        workers: how many processes.
        timeout: seconds after which a cell is ended, with everything it started.
        memory_limit: bytes that the processes of a cell may take together.
        gpus: what CUDA_VISIBLE_DEVICES calls each GPU. A cell sees one of them, that with the fewest cells at work.
    """

    cell = CELL  # what computes one

    def __init__(
        self,
        workers: int = 1,
        timeout: float | None = None,
        memory_limit: int | None = None,
        gpus: Sequence[str] = (),
    ) -> None:
        self.workers, self.timeout, self.memory_limit, self.gpus = workers, timeout, memory_limit, gpus
        self.asked: list[int] = []  # the signals, in the order in which they came

    def __call__(self, jobs: Iterable[str], on_event: OnEvent) -> None:
        with counted(self.asked):
            _Execution(self, jobs, on_event).run()

    def stop(self) -> None:
        """What a SIGTERM does; called before the cells, it keeps them from starting."""
        self.asked.append(signal.SIGTERM)


@dataclass
class _RunningCell:
    """A cell at work.

    Attributes:
        before: the manifest of an earlier run, if any.
        round: the last one that was finished.
        stopped: it was asked to end.
    """

    job: CellJob
    child: Child
    before: dict[str, Any] | None
    began: float = field(default_factory=time.monotonic)
    round: int = 0
    stopped: bool = False

    @property
    def folder(self) -> Path:
        return self.job.folder

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)


class _Execution:
    """One call of an executor: the cells that are at work."""

    def __init__(self, limits: Local, jobs: Iterable[str], on_event: OnEvent) -> None:
        self.limits, self.jobs, self.on_event = limits, iter(jobs), on_event
        self.going = True
        self.running: dict[Child, _RunningCell] = {}

    def run(self) -> None:
        try:
            while True:
                if self.limits.asked:
                    self._stop(at_once=len(self.limits.asked) > 1)
                while self._has_room() and (job := next(self.jobs, None)):
                    self._start(job)
                if not self.running:
                    break
                for child in wait(list(self.running)):
                    self._attend(self.running[child])
        finally:
            for child in self.running:
                child.kill()
            for child in self.running:
                child.close()

    def _has_room(self) -> bool:
        return self.going and not self.limits.asked and len(self.running) < self.limits.workers

    def _stop(self, at_once: bool) -> None:
        for cell in self.running.values():
            if at_once:
                cell.stopped = True
                cell.child.kill()
            elif not cell.stopped:
                cell.stopped = True
                cell.child.stop(GRACE)
                self._report(cell, {"event": "stopping", "seconds": GRACE})

    def _start(self, job: str) -> None:
        cell_job, limits = CellJob.from_json(job), self.limits
        if limits.gpus:
            at_work = Counter(cell.job.gpu for cell in self.running.values())
            cell_job = replace(cell_job, gpu=min(limits.gpus, key=lambda gpu: at_work[gpu]))
        before = believed_manifest(cell_job.folder)
        child = Child(
            limits.cell,
            cell_job.to_json() if limits.gpus else job,
            timeout=limits.timeout,
            memory_limit=limits.memory_limit,
        )
        self.running[child] = _RunningCell(cell_job, child, before)
        self._report(self.running[child], {"event": "started"})

    def _attend(self, cell: _RunningCell) -> None:
        ended = cell.child.ended  # asked first: what it said before its end is heard now
        for event in filter(is_of_a_cell, cell.child.heard()):
            cell.round = event["round"] if event["event"] == "round" else cell.round
            self._report(cell, event)
        if ended:
            del self.running[cell.child]
            end = _end(cell)
            cell.child.close()
            self._report(cell, {"event": "ended", **end})

    def _report(self, cell: _RunningCell, event: dict[str, Any]) -> None:
        self.going = self.on_event({**event, "folder": str(cell.folder)}) and self.going


def _end(cell: _RunningCell) -> dict[str, Any]:
    """`status`, `reason` and `seconds` of a cell whose process has ended, as its manifest has them now."""
    failure: ChildFailed | UserError | None = None
    try:
        result = cell.child.result()
        if result.get("reason") == HELD:
            return dict(result)
    except (ChildFailed, UserError) as error:
        failure = error
    try:
        with cell_lock(cell.folder, LOCK):
            _keep_output(cell)
            manifest = _written(cell)
            if _is_undone(cell, manifest):
                manifest |= _failed(cell, manifest, failure)
                if manifest["status"] != "interrupted":
                    with suppress(UserError):  # the disk is full, say, which is the reason given
                        write_manifest(cell.folder, manifest)
    except Held:
        return {"status": "interrupted", "reason": HELD, "seconds": None}
    except UserError as error:  # nothing can be written there
        return {"status": "failed", "reason": str(failure or error), "seconds": cell.seconds}
    return {key: manifest.get(key) for key in ("status", "reason", "seconds")}


def _written(cell: _RunningCell) -> dict[str, Any]:
    """The manifest that the cell's process wrote; before it wrote any, that of a cell at work."""
    with suppress(UserError):  # torn by somebody else
        manifest = read_manifest(cell.folder)
        if manifest is not None and manifest != cell.before:
            return manifest
    return {**cell.job.manifest, "status": "running"}


def _is_undone(cell: _RunningCell, manifest: dict[str, Any]) -> bool:
    """Whether a cell has no end on disk. At its deadline it is asked to end first, which is no interruption."""
    late = cell.child.end is not None and cell.child.end.late
    return manifest["status"] in (("running", "interrupted") if late else ("running",))


def _failed(cell: _RunningCell, manifest: dict[str, Any], error: ChildFailed | UserError | None) -> dict[str, Any]:
    """What is known of a cell whose process did not come to write its end."""
    end = cell.child.end
    assert end is not None
    if cell.stopped and not end.late and not end.memory:
        kept = (cell.folder / CHECKPOINT).is_dir()
        after = "the next run resumes from its checkpoint" if kept else "the next run starts it from the beginning"
        return {"status": "interrupted", "reason": f"ended before its round was done; {after}", "seconds": cell.seconds}
    error = error or cell.child.failure()
    reason = str(error)
    if isinstance(error, ChildFailed):
        reason = f"the worker process {reason}"
        reason = f"out of memory: it {error.reason}" if end.memory else reason
        reason = error.reason.removeprefix("was ") if end.late else reason
    code = -signal.SIGKILL if end.code is None else end.code
    return {
        **({"exit_code": code} if code >= 0 else {"signal": name_of(-code)}),
        "status": "timeout" if end.late else "failed",
        "reason": reason,
        "traceback": getattr(error, "traceback", None),
        "round": max(cell.round, manifest.get("round", 0)),  # of the checkpoint it resumed from
        "seconds": cell.seconds,
    }


def _keep_output(cell: _RunningCell) -> None:
    """Replace output.txt of an earlier run; a cell that printed nothing has none."""
    output = cell.child.end.output if cell.child.end else ""
    with suppress(UserError, OSError):  # on a full disk it is missing
        if output:
            write_atomically(cell.folder / OUTPUT, output.encode())
        else:
            (cell.folder / OUTPUT).unlink(missing_ok=True)


@hookimpl
def fedbench_register_executors(register):
    register("local", Local)
