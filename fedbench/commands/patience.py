"""What is shown while a command prepares: nothing for a second, then one line, which counts on a terminal."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedbench.words import counted

if TYPE_CHECKING:
    from rich.status import Status

AFTER = 1.0  # seconds of silence
EVERY = 0.1  # seconds between two numbers


class Patience:
    """A context manager that says on stderr what is under way where it takes longer than a second: a line that counts
    on a terminal and is gone afterwards, one plain line where output is piped."""

    def __init__(self, what: str, quiet: bool = False) -> None:
        """what: is under way, `Planning quickstart.yaml`."""
        self.what, self.quiet = what, quiet
        self.numbers = ""
        self._status: Status | None = None
        self._over, self._told, self._lock = False, 0.0, threading.Lock()
        self._timer = threading.Timer(AFTER, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Patience:
        if not self.quiet:
            self._timer.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def tell(self, done: int, of: int) -> None:
        """So many of so many cells are prepared."""
        from rich.text import Text

        self.numbers = f": {done:,} of {counted(of, 'cell')}"
        if self._status and time.monotonic() - self._told > EVERY:
            self._told = time.monotonic()
            self._status.update(Text(f"{self.what}{self.numbers}"))

    def stop(self) -> None:
        """Say no more."""
        self._timer.cancel()
        with self._lock, suppress(OSError):
            self._over = True
            if self._status:
                self._status.stop()
                self._status = None

    def _begin(self) -> None:
        from rich.text import Text

        from fedbench.commands.screen import Screen

        with self._lock, suppress(OSError):  # the terminal was closed
            if self._over:
                return
            screen = Screen(stderr=True)
            if screen.is_terminal:
                self._status = screen.status(Text(f"{self.what}{self.numbers}"))
                self._status.start()
            else:
                screen.print(Text(f"{self.what} ..."), soft_wrap=True)
