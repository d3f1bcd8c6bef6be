"""Files on their way to the disk: they wait in memory, and a thread writes them while others compute."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

from fedbench.disk import write_atomically

MOST = 2**26  # bytes that wait, but for the newest file


class Writer:
    """Files that are on the disk, whole and lasting, when `settle` returns; until then they may be in memory alone.

    What is dropped before its turn is never written. Once more than half of `most` bytes wait, one thread writes the
    oldest, and ends when it has made room; who puts a file while more than `most` of others wait is kept waiting. One
    thread may call the writer.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._waiting: dict[Path, bytes] = {}  # the oldest first
        self._bytes, self._left = 0, 0  # that wait, and that the thread may leave waiting
        self._busy: Path | None = None  # what it is writing
        self._thread: threading.Thread | None = None  # the last one
        self._writing = False  # whether it goes on
        self._error: Exception | None = None
        self._changed = threading.Condition()

    def put(self, file: Path, content: bytes) -> None:
        """Raises UserError where an earlier file could not be written."""
        with self._changed:
            self._bytes += len(content) - len(self._waiting.get(file, b""))
            self._waiting[file] = content
            self._begin(self.most // 2)
            self._changed.wait_for(lambda: not self._writing or self._bytes - len(content) <= self.most)
            self._raise()

    def get(self, file: Path) -> bytes | None:
        """What waits to be written there."""
        with self._changed:
            return self._waiting.get(file)

    def copied(self) -> dict[Path, bytes]:
        """What waited when this process was copied from another, whose thread may have left its lock closed here."""
        return dict(self._waiting)

    def keep(self, files: Collection[Path]) -> None:
        """Drop what waits to be written anywhere else."""
        with self._changed:
            for file in [file for file in self._waiting if file not in files and file != self._busy]:
                self._bytes -= len(self._waiting.pop(file))

    def settle(self) -> None:
        """Return when nothing waits. Raises UserError where something cannot be written."""
        with self._changed:
            self._begin(0)
            self._changed.wait_for(lambda: not self._writing)
            self._raise()

    def close(self) -> None:
        """Drop all that waits, and return when no thread is left."""
        self.keep(())
        if self._thread is not None:
            self._thread.join()

    def _begin(self, left: int) -> None:
        """Let no more than so many bytes wait from now on, if need be."""
        self._left = left
        if self._bytes > left and not self._writing:
            self._writing = True
            self._thread = threading.Thread(target=self._write, name="fedbench writer")
            self._thread.start()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self) -> None:
        """The life of the thread."""
        while (turn := self._next()) is not None:
            file, content = turn
            error = None
            try:
                write_atomically(file, content)
            except Exception as caught:  # for whoever calls next
                error = caught
            with self._changed:
                self._busy, self._error = None, error
                if error is None and self._waiting.get(file) is content:
                    self._bytes -= len(self._waiting.pop(file))
                self._changed.notify_all()

    def _next(self) -> tuple[Path, bytes] | None:
        with self._changed:
            if self._error is not None or self._bytes <= self._left:
                self._writing = False
                self._changed.notify_all()
                return None
            self._busy = next(iter(self._waiting))
            return self._busy, self._waiting[self._busy]
