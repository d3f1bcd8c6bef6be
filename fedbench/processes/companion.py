"""A process next to a worker, for third-party code that must not change what the worker computes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from fedbench.processes import process_tree
from fedbench.processes.guard import TO_JOIN, join_threads

MARGIN = 1.0  # seconds beyond TO_JOIN after which it is killed


class Companion:
    """A copy of this process, made as long as it has one thread, that calls one function again and again.

    What it prints goes where this process prints. It ends with this process.
    """

    def __init__(self, work: Callable[[Any], Any]) -> None:
        """work: takes and returns a JSON value."""
        self._line, far = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._line.close()
            _serve(far, work)
        far.close()

    def ask(self, argument: Any) -> Any:
        """What the function returns. Raises: EOFError where the process has ended."""
        try:
            self._line.send_bytes(json.dumps(argument).encode())
            return json.loads(self._line.recv_bytes())
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        """Let its threads end, and wait for that. Of several, the last to be made is the first to be closed."""
        self._line.close()
        until = time.monotonic() + TO_JOIN + MARGIN
        with suppress(ChildProcessError):
            while not os.waitpid(self._pid, os.WNOHANG)[0]:
                if time.monotonic() > until:
                    os.kill(self._pid, signal.SIGKILL)
                time.sleep(0.002)


def _serve(line: Connection, work: Callable[[Any], Any]) -> NoReturn:
    """The life of the copy: whatever happens, it ends here."""
    try:
        process_tree.end_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(EOFError):
            while True:
                line.send_bytes(json.dumps(work(json.loads(line.recv_bytes()))).encode())
        join_threads()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):  # third-party code may have put something else in their place
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)
