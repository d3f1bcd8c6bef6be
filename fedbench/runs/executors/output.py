"""What a cell prints: the beginning and the end of it, in a file of the cell's folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fedbench.disk import write_atomically
from fedbench.errors import UserError

OUTPUT = "output.txt"
KEPT = 2**15  # bytes kept of the beginning, and of the end


class Output:
    """Reads the pipe that is a cell's stdout and stderr, as fast as the cell writes."""

    def __init__(self, pipe: int) -> None:
        self.pipe, self.head, self.tail, self.size = pipe, b"", b"", 0
        self.open = True
        os.set_blocking(pipe, False)

    def read(self) -> bool:
        """Take what is there, at most 64 KiB; whether there was anything."""
        try:
            more = os.read(self.pipe, 2**16)
        except BlockingIOError:
            return False
        self.open = bool(more)
        self.size += len(more)
        room = KEPT - len(self.head)
        self.head += more[:room]
        self.tail = (self.tail + more[room:])[-KEPT:]
        return self.open

    def text(self) -> str:
        left_out = self.size - len(self.head) - len(self.tail)
        between = f"\n... {left_out:,} bytes left out ...\n".encode() if left_out else b""
        return (self.head + between + self.tail).decode(errors="replace")

    def write(self, folder: Path) -> None:
        """Replace output.txt of an earlier run; a cell that printed nothing has none."""
        with suppress(UserError, OSError):  # on a full disk it is missing
            if self.size:
                write_atomically(folder / OUTPUT, self.text().encode())
            else:
                (folder / OUTPUT).unlink(missing_ok=True)


def traceback_in(text: str) -> str | None:
    """The Python stack that faulthandler printed last: where a cell crashed, or where it was when it was out of
    time."""
    crash, hang = text.rfind("Fatal Python error"), text.rfind("Stack (most recent call first)")
    begin = crash if crash >= 0 else hang
    if begin < 0:
        return None
    lines = text[begin:].splitlines()
    return "\n".join(line for line in lines if not line.startswith("Extension modules:")).strip()
