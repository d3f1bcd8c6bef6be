"""The supervisor: calls a function in a separate process, and ends that with everything it has started.

The caller has a guard forked from a server that has torch loaded, and the guard forks the worker. The guard holds the
limits and keeps what the worker prints. It ends what the worker leaves behind, also when the caller is gone. The worker
dies with its guard. Where a guard is killed, the server adopts what was below it, and the caller ends that.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any

from fedbench.errors import UserError
from fedbench.processes import guard, process_tree
from fedbench.processes.fork_server import (
    ENVIRONMENT,
    forget_server,
    may_have_children,
    no_script,
    server_pid,
    start_server,
)
from fedbench.words import memory

LAST = 6.0  # seconds that a guard has to end what it watches
PATIENCE = 0.2  # seconds that `wait` waits at most
LONGEST = 2**24  # bytes of an event

_guards = set[int]()  # process ids of this process's children
_starting = threading.RLock()


def _start_afresh() -> None:
    """In a process that was forked, which has neither the server nor the guards of its parent."""
    global _starting
    _guards.clear()
    _starting = threading.RLock()
    forget_server()


os.register_at_fork(after_in_child=_start_afresh)


class ChildFailed(Exception):
    """A child has no result.

    Attributes:
        reason: follows on its name in a sentence.
        late: it was out of time.
        traceback: its Python stack, if known.
        output: what it printed.
    """

    def __init__(self, reason: str, end: End, traceback: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.late, self.output = reason, end.late, end.output
        self.traceback = traceback or _stack_in(end.output)


@dataclass(frozen=True)
class End:
    """How a process ended.

    Attributes:
        code: its exit code, or a signal's number below 0; None where its guard was killed.
        late: it was out of time.
        memory: bytes, where it took more than the limit.
        output: what it printed.
    """

    code: int | None = None
    late: bool = False
    memory: int | None = None
    output: str = ""


class Child:
    """A function at work in a separate process.

    Attributes:
        end: how its process ended; None until then.
        answer: what the function returned or raised; None until then.
    """

    def __init__(
        self, function: str, argument: Any, *, timeout: float | None = None, memory_limit: int | None = None
    ) -> None:
        """Args:
            function: `package.module:function`, called as `function(argument, tell)`, where `tell` sends a JSON object
                with the key `event` to the caller.
            argument: a JSON value.
            timeout: seconds after which it is asked to end, and soon killed.
            memory_limit: bytes that its processes may take together.

        Raises: UserError where no process can be started.
        """
        self.timeout, self.memory_limit = timeout, memory_limit
        self.end: End | None = None
        self.answer: dict[str, Any] | None = None
        environment = {**ENVIRONMENT, **os.environ}
        job = [function, argument, timeout, memory_limit, os.getcwd(), environment]
        context = get_context("forkserver")
        self.events, tell = context.Pipe(duplex=False)
        self.line, far = context.Pipe()
        self._rest, self._is_open = b"", True
        self._process = context.Process(target=guard.guard, args=(json.dumps(job), far, tell))
        self._start()
        tell.close()
        far.close()
        self._until = time.monotonic() + (timeout or math.inf) + guard.TO_TRACE + guard.TO_END + LAST

    def _start(self, again: bool = True) -> None:
        try:
            with _starting, no_script(), may_have_children():
                start_server()
                self._process.start()
                _guards.add(self._process.pid or 0)
        except (EOFError, ConnectionError) as error:
            if again:  # a child may have killed the server
                time.sleep(0.5)
                return self._start(again=False)
            raise UserError(
                "no worker process can be started: their server ended before it had loaded torch. "
                "The system does that when memory runs out; `fedbench doctor` says whether torch loads at all"
            ) from error

    @property
    def ended(self) -> bool:
        """Whether its process has ended, with all that it started. `heard` then gives its last events."""
        if self.end is None:
            try:
                if self.line.poll():
                    self.end = End(**json.loads(self.line.recv_bytes()))
            except (EOFError, OSError, ValueError, TypeError):  # somebody killed the guard
                self._process.join(LAST)  # only then has the server what was below it
                with _starting:
                    process_tree.end_children_of(server_pid(), _guards)
                self.end = End()
        return self.end is not None

    def heard(self) -> list[dict[str, Any]]:
        """The events since the last call. What is no JSON object with an `event` is passed over."""
        events = []
        for _ in range(2 * LONGEST // 2**16 if self.end else 1):
            if not self._is_open or not connection.wait([self.events], 0):
                break
            more = os.read(self.events.fileno(), 2**16)
            self._is_open = bool(more)
            *lines, rest = (self._rest + more).split(b"\n")
            self._rest = rest[-LONGEST:]
            for line in lines:
                with suppress(ValueError, RecursionError):
                    event = json.loads(line)
                    if isinstance(event, dict) and event.get("event") == "answer":
                        self.answer = event
                    elif isinstance(event, dict) and isinstance(event.get("event"), str):
                        events.append(event)
        return events

    def stop(self, grace: float) -> None:
        """Ask it by SIGTERM to end; after so many seconds it is killed."""
        self._until = min(self._until, time.monotonic() + grace + LAST)
        with suppress(OSError):  # it has ended meanwhile
            self.line.send_bytes(json.dumps(grace).encode())

    def kill(self) -> None:
        """Have it killed with everything it has started; `ended` says when that is done."""
        self.stop(0.0)

    def result(self) -> Any:
        """What the function returned. Raises: UserError as the function did, ChildFailed where there is no result."""
        answer, end = self.answer or {}, self.end or End()
        if "result" in answer:
            return answer["result"]
        if answer.get("user_error"):
            raise UserError(str(answer.get("reason")), option=str(answer.get("option")))
        if answer and not end.late:
            raise ChildFailed(str(answer.get("reason")), end, answer.get("traceback"))
        raise self.failure()

    def failure(self) -> ChildFailed:
        """Why its process, which has ended, gave no result."""
        end = self.end or End()
        return ChildFailed(self._reason(end), end)

    def _reason(self, end: End) -> str:
        if end.memory:
            return f"took {memory(end.memory)} of memory, and the limit is {memory(self.memory_limit or 0)}"
        if end.late:
            return f"was not done after {self.timeout:g} s"
        if end.code is None:
            return "ended because the process that watches over it was killed"
        if end.code >= 0:
            return f"ended with exit code {end.code}"
        hint = "; the system does that when memory runs out" if -end.code == signal.SIGKILL else ""
        return f"was killed by {name_of(-end.code)}{hint}"

    def close(self) -> None:
        """End it, and return when that is done."""
        if not self.ended:
            self.kill()
        while not self.ended:
            wait([self])
        self.line.close()
        self.events.close()
        self._process.join(LAST)
        _guards.discard(self._process.pid or 0)


def wait(children: Sequence[Child], patience: float = PATIENCE) -> list[Child]:
    """Those that have something to say or have ended; waits so many seconds for one."""
    voices: dict[Connection, Child] = {child.line: child for child in children if child.end is None}
    voices |= {child.events: child for child in children if child._is_open}
    ready = {voices[voice] for voice in connection.wait(voices, patience)}  # type: ignore[index]
    for child in children:
        if child.end is None and time.monotonic() > child._until:  # its guard does not do its work
            child._process.kill()
    return [child for child in children if child in ready or child.end]


def call(
    function: str,
    argument: Any,
    *,
    timeout: float | None,
    memory_limit: int | None = None,
    on_event: Callable[[dict[str, Any]], Any] | None = None,
    on_output: Callable[[str], Any] | None = None,
) -> Any:
    """What a function returns that is called in a separate process. on_output: is given what the process printed, when
    it has ended. Arguments and exceptions: see `Child`."""
    child = Child(function, argument, timeout=timeout, memory_limit=memory_limit)
    try:
        while True:
            wait([child])
            ended = child.ended
            for event in child.heard():
                if on_event:
                    on_event(event)
            if ended or child.answer:
                break
    finally:
        child.close()
        if on_output and child.end:
            on_output(child.end.output)
    return child.result()


def name_of(number: int) -> str:
    """Of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _stack_in(text: str) -> str | None:
    """The Python stack that faulthandler printed last: where a process crashed, or where it was at its deadline."""
    crash, hang = text.rfind("Fatal Python error"), text.rfind("Stack (most recent call first)")
    begin = crash if crash >= 0 else hang
    if begin < 0:
        return None
    lines = text[begin:].splitlines()
    return "\n".join(line for line in lines if not line.startswith("Extension modules:")).strip()
