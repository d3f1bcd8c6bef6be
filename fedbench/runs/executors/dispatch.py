"""Cells on other machines, from the run's side: errands out, events and answers in, cells of lost machines again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fedbench.cell.events import PASSED_ON, read
from fedbench.cell.order import Order
from fedbench.errors import UserError
from fedbench.results import read_manifest, write_manifest
from fedbench.results.claims import Claim, Taken, ask_to_end, handed_out
from fedbench.results.status import ENDED, TAKEN
from fedbench.runs.executors import OnEvent
from fedbench.runs.executors.environment import ONE_THREAD, unless_set
from fedbench.runs.executors.local import GRACE
from fedbench.words import counted

ENDING = GRACE + 10.0  # seconds that cells elsewhere have to end and to answer, before they are cancelled


class Lost(Exception):
    """A task has ended without an answer: its machine or its process is gone. The message says what is known."""


class Cluster(Protocol):
    """Where errands are done by `remote.cell`. A task is whatever stands for one of them."""

    def room(self, busy: int) -> int:
        """How many more tasks may be submitted beside `busy` ones. Raises: UserError where none ever could."""

    def submit(self, errands: Sequence[str]) -> Sequence[Any]:
        """A task for each errand."""

    def ended(self, tasks: Sequence[Any]) -> Sequence[Any]:
        """Those that have ended, after a wait of half a second or so; without tasks, the wait for room alone. Raises:
        UserError where there has been no room for too long."""

    def answer(self, task: Any) -> str:
        """What an ended task has answered. Raises: Lost."""

    def cancel(self, task: Any) -> None:
        """End a task at once."""


@dataclass
class _Sent:
    """A cell that is elsewhere: its order with the run's claim, the attempt, and what was heard of it."""

    order: Order
    attempt: Claim = field(default_factory=dict)
    events: Path = Path()
    read: int = 0  # bytes of `events`
    started: bool = False
    round: int = 0  # the last one heard of
    furthest: int = 0  # that of the attempts before
    losses: int = 0  # since it last got further
    withdrawn: bool = False
    task: Any = None

    @property
    def folder(self) -> str:
        return str(self.order.folder)

    @property
    def claim(self) -> Claim:
        return self.order.claim or {}  # a run claims each cell that it hands out


class Dispatch:
    """One call of an executor.

    limits: of a cell, as `local` takes them · changes: to every order, as the cluster needs them · attempts: how often
    in a row a cell may be lost without getting further, before it has failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        limits: Mapping[str, Any],
        changes: Mapping[str, Any],
        attempts: int,
        on_event: OnEvent,
    ) -> None:
        self.cluster, self.limits, self.changes, self.attempts = cluster, limits, changes, attempts
        self.on_event, self.going, self.dry = on_event, True, False  # dry: no job is left
        self.sent: list[_Sent] = []
        self.again: list[_Sent] = []

    def run(self, jobs: Iterable[str]) -> None:
        """All jobs, one that is lost as often as it gets further. Raises: UserError where a machine refuses a job."""
        waiting = iter(jobs)
        try:
            while True:
                self._fill(waiting)
                if not self.sent and not self._is_waiting():
                    break
                ended = self.cluster.ended([one.task for one in self.sent])
                for one in list(self.sent):
                    self._listen(one)
                    if one.task in ended:
                        self._close(one)
                    elif not self.going:
                        self._withdraw(one)
            for one in self.again:
                reason = "its machine was lost, and no more cells were started"
                self._end(one, {"status": "interrupted", "reason": reason, "seconds": None})
        except BaseException:
            self._stop()
            raise
        finally:
            for one in [*self.sent, *self.again]:
                _delete(one.events)

    def _is_waiting(self) -> bool:
        """Whether cells are left that may start once there is room."""
        return self.going and (bool(self.again) or not self.dry)

    def _fill(self, waiting: Iterator[str]) -> None:
        """Submit what there is room for, cells that were lost first."""
        new: list[_Sent] = []
        room = self.cluster.room(len(self.sent)) if self.going else 0
        while len(new) < room:
            if self.again:
                new.append(self.again.pop(0))
            elif job := next(waiting, None):
                new.append(_Sent(Order.from_json(job)))
            else:
                self.dry = True
                break
        errands = [errand for one in new if (errand := self._errand(one))]
        new = [one for one in new if one.attempt]
        for one, task in zip(new, self.cluster.submit(errands) if errands else [], strict=True):
            one.task = task
            self.sent.append(one)

    def _errand(self, one: _Sent) -> str | None:
        """The next attempt at a cell as a JSON string; None where another run has taken the cell over, or where the
        attempt cannot be written down, which the cell fails of."""
        try:
            one.attempt = handed_out(one.claim)
        except Taken as taken:
            one.attempt = {}
            self._end(one, {"status": TAKEN, "reason": str(taken), "seconds": None})
            return None
        except UserError as error:  # the disk is full, say
            one.attempt = {}
            self._end(one, {"status": "failed", "reason": str(error), "seconds": None})
            return None
        folder = Path(one.folder)
        one.events = folder.parent / f".{folder.name.rpartition('-')[2]}.{one.attempt['attempt']}.events"
        one.read = 0
        return json.dumps(
            {
                "job": replace(one.order, **self.changes, claim=one.attempt).to_json(),
                "limits": self.limits,
                "events": str(one.events),
                "environment": _environment(),
            }
        )

    def _listen(self, one: _Sent) -> None:
        """Pass on what a cell has told since the last time, of a file that other machines write: what is no event of
        theirs is passed over."""
        try:
            with open(one.events, "rb") as lines:
                lines.seek(one.read)
                text = lines.read()
        except OSError:  # not there yet, or its server is not
            return
        whole = text[: text.rfind(b"\n") + 1]
        one.read += len(whole)
        for line in whole.splitlines():
            event = read(line, PASSED_ON)
            if event is None:
                continue
            if event["event"] == "round":
                one.round = max(one.round, event["round"])
                one.order = replace(one.order, fresh=False)  # what it has of a checkpoint by now is its own
            if event["event"] == "started" and one.started:
                continue
            one.started = True
            self._tell(one, event)

    def _close(self, one: _Sent) -> None:
        """Take the answer of a task that has ended. Raises: UserError for a refusal."""
        self.sent.remove(one)
        _delete(one.events)
        try:
            answer = json.loads(self.cluster.answer(one.task))
            if "refused" in answer:
                raise UserError(answer["refused"])
            if answer["status"] not in ENDED:
                raise Lost("its machine asked it to end")
            self._end(one, answer)
        except Lost as lost:
            self._lost(one, str(lost))

    def _lost(self, one: _Sent, reason: str) -> None:
        one.losses = 1 if one.round > one.furthest else one.losses + 1
        one.furthest = max(one.furthest, one.round)
        if not self.going:
            if one.started:
                self._end(one, {"status": "interrupted", "reason": reason, "seconds": None})
            return
        if one.losses < self.attempts:
            self.again.append(one)
            self._tell(one, {"event": "lost", "reason": reason})
            return
        why = f"lost {counted(one.losses, 'time')} in a row without getting further, the last time because {reason}"
        end = {"status": "failed", "reason": why, "seconds": 0.0}
        with suppress(Taken, UserError):  # the latter where the disk is full, say
            handed_out(one.claim)  # from now on, whatever may be left of it writes nothing
            folder = Path(one.folder)
            manifest: Mapping[str, Any] | None = read_manifest(folder)
            if manifest is None or manifest["status"] in ENDED:  # in an earlier run
                manifest = one.order.manifest
            write_manifest(folder, {**manifest, **end, "seconds": manifest.get("seconds", 0.0)})
        self._end(one, end)

    def _end(self, one: _Sent, end: Mapping[str, Any]) -> None:
        if not one.started:
            one.started = True
            self._tell(one, {"event": "started"})
        self._tell(one, {"event": "ended", **end})

    def _tell(self, one: _Sent, event: dict[str, Any]) -> None:
        self.going = self.on_event({**event, "folder": one.folder}) and self.going

    def _withdraw(self, one: _Sent) -> None:
        """Cancel a task that has not begun, once."""
        if not one.withdrawn and not one.events.exists():
            one.withdrawn = True
            self.cluster.cancel(one.task)

    def _stop(self) -> None:
        """Let cells elsewhere finish their round, for at most `ENDING`, and cancel what is there of them after that."""
        self.going, until = False, time.monotonic() + ENDING
        try:
            for one in self.sent:
                self._withdraw(one)
                with suppress(Taken, UserError):
                    ask_to_end(one.attempt)
                self._tell(one, {"event": "stopping", "seconds": GRACE})
            while self.sent and time.monotonic() < until:
                ended = self.cluster.ended([one.task for one in self.sent])
                for one in [one for one in self.sent if one.task in ended]:
                    with suppress(UserError):
                        self._close(one)
        finally:
            for one in self.sent:
                self.cluster.cancel(one.task)


def _delete(events: Path) -> None:
    with suppress(OSError):  # a disk that is read-only by now; the next run deletes them
        events.unlink(missing_ok=True)


def changes(gpu: float, cpus: int) -> dict[str, Any]:
    """What is other in an order elsewhere than in one here: as many processes as it has CPUs, and a GPU only if it
    asked for one."""
    return {"processes": cpus} | ({} if gpu else {"device": "cpu"})


def _environment() -> dict[str, str]:
    """What of this process's environment holds on other machines too."""
    own = {name: value for name, value in os.environ.items() if name.startswith("FEDBENCH_")}
    return own | unless_set(ONE_THREAD)
