"""What one input led to: an answer, a refusal, or a fault; and whether anything around its folder has changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from random import Random
from types import FrameType

from fedbench.errors import UserError

SECONDS = 5.0  # of the processor, for one input
PATIENCE = 12  # times as long by the clock, on a machine that has other things to do
SECRET = "secret-of-another-folder"


class TooSlow(KeyboardInterrupt):
    """As Ctrl-C, so that no handler of the program takes it for a fault of its own."""


class Leak(Exception):
    """Something outside the folder was read or written."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    clocks = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE * seconds))
    before = [signal.signal(number, end) for _, number, _ in clocks]
    for clock, _, limit in clocks:
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


class Arena:
    """A folder `inside` for one input at a time, in the midst of files that nobody may touch."""

    def __init__(self, root: Path) -> None:
        self.root, self.inside = root, root / "outer" / "inside"
        for place in ("around", "outer/around", "outer/x", "x"):
            (root / place).mkdir(parents=True)
            (root / place / "canary").write_text(f"{SECRET} of {place}")
        self.print = self._print()

    def run(self, attack: Callable[[Path, Random], None], chance: Random) -> str:
        """ "answered" or "refused"; else the fault: what was raised where, "too slow", or what was touched."""
        shutil.rmtree(self.inside, ignore_errors=True)
        self.inside.mkdir()
        with chdir(self.inside):
            told = _told(lambda: attack(self.inside, chance))
        if self._print() != self.print:
            told = "something outside of the folder was written"
        return told

    def _print(self) -> str:
        """A hash of all that lies around `inside`."""
        found = hashlib.sha256()
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if Path(folder, name) != self.inside)
            for name in sorted(files):
                file = Path(folder, name)
                found.update(
                    f"{file} {file.lstat().st_mtime_ns}".encode("utf-8", "surrogateescape") + file.read_bytes()
                )
            found.update(repr(folders).encode("utf-8", "surrogateescape"))
        return found.hexdigest()


def _told(call: Callable[[], None]) -> str:
    try:
        with time_limit(SECONDS):
            call()
    except UserError as refusal:
        return "refused" if str(refusal).strip() else "refused without a word"
    except TooSlow as error:
        return f"too slow: {_place(error)}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:120]!r} {_place(error)}"
    return "answered"


def _place(error: BaseException) -> str:
    """The last frames in fedbench."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "/fedbench" in f.filename or "/plugins/" in f.filename
    ]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames[-3:]))
