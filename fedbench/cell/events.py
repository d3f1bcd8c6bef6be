"""What a cell tells the run, through a pipe: a JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

LONGEST = 2**20  # bytes of a line

# What a cell may tell, and the types of what goes with it; start and end are the executor's to tell.
SHAPES: dict[str, dict[str, type]] = {
    "ready": {},
    "torn": {"reasons": list},
    "warned": {"reasons": list},
    "resumed": {"round": int},
    "round": {"round": int},
    "probed": {},
    "broke": {"reason": str},
    "unsure": {"reason": str},
}

# What may go with it besides, and is left out where it is of another type.
MORE: dict[str, dict[str, type]] = {"round": {"images": int, "metric": str, "score": float}}

# What of it, and of what `local` tells of a cell, a cell on another machine passes on.
PASSED_ON: dict[str, dict[str, type]] = {"started": {}} | {
    name: SHAPES[name] for name in ("torn", "warned", "resumed", "round")
}


class Teller:
    """The cell's end."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def tell(self, event: dict[str, Any]) -> None:
        """Raises: OSError where nobody listens any more."""
        line = json.dumps(event).encode() + b"\n"
        while line:
            line = line[os.write(self.pipe.fileno(), line) :]

    def close(self) -> None:
        self.pipe.close()


class Listener:
    """The run's end. It never waits, and passes over what is no event: a method may write where it likes."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.open, self.rest = pipe, True, b""
        os.set_blocking(pipe.fileno(), False)

    def fileno(self) -> int:
        return self.pipe.fileno()

    def heard(self) -> list[dict[str, Any]]:
        """The events since the last call, out of at most 64 KiB."""
        try:
            more = os.read(self.pipe.fileno(), 2**16)
        except BlockingIOError:
            return []
        self.open = bool(more)
        *lines, rest = (self.rest + more).split(b"\n")
        self.rest = rest[-LONGEST:]
        return [event for line in lines if (event := read(line))]

    def remaining(self) -> list[dict[str, Any]]:
        """All events since the last call, of a cell that has ended; half a line it may have left is forgotten."""
        events: list[dict[str, Any]] = []
        while self.open and wait([self.pipe], 0):
            events += self.heard()
        self.rest = b""
        return events

    def close(self) -> None:
        self.pipe.close()


def read(line: bytes, shapes: Mapping[str, dict[str, type]] = SHAPES) -> dict[str, Any] | None:
    """The event that a line tells; None where it is none of `shapes`."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    what = event.get("event") if isinstance(event, dict) else None
    if not isinstance(what, str) or what not in shapes:
        return None
    right = all(type(event.get(name)) is wanted for name, wanted in shapes[what].items())
    if not right or not all(isinstance(reason, str) for reason in event.get("reasons", ())):
        return None
    more = MORE.get(what, {})
    if not all(type(event[name]) is wanted for name, wanted in more.items() if name in event):
        event = {name: value for name, value in event.items() if name not in more}
    return event
