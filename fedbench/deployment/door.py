"""The doors of Flower's apps: sockets at which processes wait that have torch loaded. Imported by every message."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any


def knock(path: str) -> socket.socket:
    """A connection to the process that waits there."""
    there = socket.socket(socket.AF_UNIX)
    there.connect(path)
    return there


def put(there: socket.socket, facts: Mapping[str, Any], contents: Sequence[bytes] = ()) -> None:
    """Send facts and contents."""
    for part in (json.dumps({**facts, "contents": len(contents)}).encode(), *contents):
        there.sendall(len(part).to_bytes(8, "little"))
        there.sendall(part)


def got(there: socket.socket) -> tuple[dict[str, Any], list[bytes]]:
    """What the other side has sent. Raises ConnectionError where it has ended."""
    facts = json.loads(_part(there))
    return facts, [_part(there) for _ in range(facts.pop("contents"))]


def _part(there: socket.socket) -> bytes:
    return _exactly(there, int.from_bytes(_exactly(there, 8), "little"))


def _exactly(there: socket.socket, size: int) -> bytes:
    parts, read = bytearray(size), 0
    view = memoryview(parts)
    while read < size:
        if not (n := there.recv_into(view[read:])):
            raise ConnectionError("the other side has ended")
        read += n
    return bytes(parts)
