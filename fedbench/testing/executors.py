"""Checks of executors: they are given cells, as small as can be, and what becomes of each is compared with what they
say."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedbench.errors import Interrupted, UserError
from fedbench.registry.made import Misfit
from fedbench.registry.registry import Registry
from fedbench.testing.cells import Cells, Job, cells, faults_of
from fedbench.testing.slurm import pretended_slurm
from fedbench.testing.verdict import Untried
from fedbench.testing.world import expect

PATIENCE = 120.0  # seconds without a sign of life of an executor that has work, or is to return; elsewhere twice that
ENDS = ("finished", "failed")
NO = (
    "`on_event` answered False, and the executor asks for another job: no more cells may start, and `execute` returns "
    "when those at work have ended"
)
GIVEN: dict[str, Any] = {"workers": 2, "most": 2, "timeout": 100.0, "memory_limit": None, "gpu": 0.0}

Execute = Callable[..., Any]


def check_executor(registry: Registry, ref: dict[str, Any]) -> None:
    """Computes each job that it asks for once, tells how it ended, and returns then; heeds `on_event` that says no, and
    an interruption; survives a cell that raises, and one whose process dies where it has processes.

    One for other machines is called as well. Slurm's commands are pretended: their jobs are processes here. Raises
    AssertionError; Untried where what it stands on is not here.
    """
    with pretended_slurm(), cells() as own:
        try:
            execute = registry.make("executor", ref, **GIVEN)
        except Misfit:
            raise
        except UserError as error:
            raise Untried(str(error)) from error
        elsewhere = registry.catalogue.find("executor", ref["name"]).elsewhere  # where each call may start a cluster
        with _patience(2 * PATIENCE if elsewhere else PATIENCE):
            _check_work(execute, [own.job(), own.job("raise"), own.job("die")])
            if not elsewhere:
                _check_no(execute, own)
            _check_interruption(execute, _Asked([own.job()], going=not elsewhere, interrupt=True))


def _check_work(execute: Execute, jobs: Sequence[Job]) -> None:
    asked = _Asked(jobs)
    end = asked.of(execute)
    expect(asked.jobs, "the executor returns without asking for a job: take jobs from the iterator, `for job in jobs`")
    expect(end is None, f"`execute` tells what happens by on_event, and returns nothing, not {type(end).__name__}")
    left = f"it returns when it has asked for {len(asked.jobs)} of {len(jobs)} jobs, though `on_event` says True: go on"
    expect(len(asked.jobs) == len(jobs), left)
    asked.check(ENDS)


def _check_no(execute: Execute, own: Cells) -> None:
    """After the first event on_event says that no more cells may start."""
    asked = _Asked([own.job() for _ in range(2 * GIVEN["most"])], going=False)
    asked.of(execute)
    expect(not asked.late, NO)
    asked.jobs = [job for job in asked.jobs if job.processes or job.events]  # others may never start
    asked.check((*ENDS, "interrupted"))


def _check_interruption(execute: Execute, asked: _Asked) -> None:
    """Ctrl-C, which raises Interrupted wherever the main thread is: here as soon as more than one job is asked for, if
    it may be."""
    try:
        asked.of(execute)
    except Interrupted:
        return
    expect(not asked.late, NO)
    expect(
        not asked.interrupted,
        "it swallows fedbench.errors.Interrupted, by which Ctrl-C and a scheduler's SIGTERM end a run: catch "
        "`Exception` at most, and raise what is a BaseException again once the cells have ended",
    )


class _Asked:
    """Jobs to be asked for, and what is heard while they are computed.

    going: what on_event answers · interrupt: raise Interrupted where there is no job any more · jobs: those that were
    asked for · late: whether one was after an answer of False · interrupted: whether Interrupted was raised.
    """

    def __init__(self, jobs: Sequence[Job], going: bool = True, interrupt: bool = False) -> None:
        self.given, self.going, self.interrupt = jobs, going, interrupt
        self.jobs: list[Job] = []
        self.foreign: list[Any] = []  # events of no folder that is here
        self.heard = self.late = self.interrupted = False

    def of(self, execute: Execute) -> Any:
        """What `execute` returns. Raises AssertionError where it raises, or never returns."""
        _alive()
        try:
            return execute(self._asked(), self._hear)
        except BaseException as error:
            if _seconds[1:]:  # whatever became of _Late on its way through C
                told = f"it is silent for {_seconds[0]:g} seconds and does not return: {self._waits()}"
                raise AssertionError(told) from error
            if isinstance(error, UserError):
                raise Untried(str(error)) from error
            if isinstance(error, Exception) and not isinstance(error, AssertionError):
                raise AssertionError(_raised(error)) from error
            raise

    def check(self, ends: Sequence[str]) -> None:
        """Raises AssertionError for what is wrong with what was computed and told."""
        expect(not self.foreign, f"it tells of a folder that no job has: {self.foreign[:1]}; each has `folder`")
        for fault in faults_of(self.jobs, ends):
            raise AssertionError(fault)

    def _asked(self) -> Iterator[str]:
        for job in self.given:
            self.late |= self.heard and not self.going
            if self.late:
                return
            self.jobs.append(job)
            _alive()
            yield job.order.to_json()
        self.late |= self.heard and not self.going
        if self.interrupt and not self.late:
            self.interrupted = True
            raise Interrupted(signal.SIGINT)

    def _hear(self, event: Any) -> bool:
        _alive()
        self.heard = True
        folders = {str(job.order.folder): job for job in self.jobs}
        well = isinstance(event, dict) and isinstance(event.get("event"), str)
        if well and str(event.get("folder")) in folders:
            folders[str(event["folder"])].events.append(event)
        else:
            self.foreign.append(event)
        return self.going

    def _waits(self) -> str:
        """What an executor may be waiting for that has given no sign of life."""
        undone = [job.name for job in self.jobs if job.manifest["status"] not in ENDS]
        if undone:
            return f"nothing came of {', '.join(undone)}, which it has asked for: is it lost?"
        return f"all {len(self.jobs)} jobs that it has asked for have ended: `execute` returns then"


def _raised(error: Exception) -> str:
    told = f"`execute` raises {type(error).__name__}: {error}"
    if any(word in told.lower() for word in ("pickle", "get local object")):  # the latter as Python 3.13 has it
        return (
            f"{told}; what goes to another process is pickled: send the job, which is a string, and a function from "
            "the top of a module, no lambda and nothing that is defined within another function"
        )
    return f"{told}; what goes wrong with one cell is told as its end, so that the others are computed"


class _Late(BaseException):
    """Nothing was heard for too long; no Exception, which an executor may catch."""


_seconds: list[float] = []  # how long an executor may be silent; a second entry: it was


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Within, an executor that gives no sign of life for so many seconds is interrupted; in the main thread alone."""

    def late(number: int, frame: Any) -> None:
        _seconds.append(seconds)
        raise _Late

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    _seconds[:] = [seconds]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        _seconds.clear()


def _alive() -> None:
    """A sign of life: the patience begins anew."""
    if _seconds and threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_REAL, _seconds[0])
