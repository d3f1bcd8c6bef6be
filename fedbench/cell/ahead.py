"""A copy of this process that works ahead on a core that would be idle: what it finds it leaves on disk, where this one
finds it in turn. Whatever becomes of the copy, the work is done here all the same."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress

from fedbench import machine

AFTER = 0.2  # seconds of work after which a copy is made; less is done sooner than it pays
PATIENCE = 5.0  # seconds that a copy may take to stop
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # which the copy takes otherwise, from its first instruction on


class Copy:
    """Nothing until `begin` makes it, and gone with `end`."""

    def __init__(self) -> None:
        self.pid = 0
        self._since: float | None = None

    def due(self) -> bool:
        """Whether a copy may be made here and there was none: where processes can be copied (macOS's libraries forbid
        it, and autograd does where there is a GPU), on a second core, and once this has been asked for as long as
        AFTER."""
        if self._since is None:
            self._since = time.monotonic()
        late = time.monotonic() - self._since >= AFTER
        return late and sys.platform == "linux" and machine.cores() > 1 and not machine.has_gpu()

    def begin(self, work: Callable[[Callable[[], bool]], object]) -> None:
        """Make a copy that does work(wanted) and ends; wanted() is whether this process still waits for any of it."""
        parent, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._since = math.inf  # once is enough
        try:
            with warnings.catch_warnings(), suppress(OSError):  # no room for another process: then there is none
                warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 on: the thread of `Patience`
                self.pid = os.fork()
            if self.pid == 0 and os.getpid() != parent:
                _work(work, lambda: os.getppid() == parent, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """Stop the copy and see that it is gone; whoever is killed first leaves it to `wanted`."""
        if not self.pid:
            return
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGTERM)
            until = time.monotonic() + PATIENCE
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > until:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    break
                time.sleep(0.002)
        self.pid = 0


def _work(
    work: Callable[[Callable[[], bool]], object], wanted: Callable[[], bool], mask: Iterable[signal.Signals | int]
) -> None:
    """In the copy: it says nothing, computes on one thread (torch's others have not come along), leaves Ctrl-C to the
    process that waits for it, and ends without what that one does at its end."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _leave)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with open(os.devnull, "w") as sys.stdout:
            sys.stderr = sys.stdout
            os.dup2(sys.stdout.fileno(), 1)
            os.dup2(sys.stdout.fileno(), 2)
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(1)
            work(wanted)
    finally:
        os._exit(0)


def _leave(*_: object) -> None:
    """Files that are being written are cleared away on the way out."""
    raise SystemExit
