"""Ctrl-C, a scheduler's SIGTERM and a closed terminal: counted while workers are at work, and raised afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedbench.errors import Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """A handler for all signals that end a run, but for those that are ignored (`nohup`)."""
    former = {number: signal.getsignal(number) for number in ENDING}
    if threading.current_thread() is not threading.main_thread():
        former = {}  # Python delivers signals to the main thread alone
    taken = {number: before for number, before in former.items() if before not in (signal.SIG_IGN, None)}
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in taken.items():
            signal.signal(number, before)


@contextmanager
def raising() -> Iterator[None]:
    """Such a signal raises Interrupted where it finds the program."""

    def handler(number: int, frame: Any) -> None:
        raise Interrupted(number)

    with handled(handler):
        yield


@contextmanager
def counted(numbers: list[int]) -> Iterator[None]:
    """The numbers of such signals are appended to `numbers` as they come in. Raises: Interrupted, at the end, where
    there is one."""
    with handled(lambda number, frame: numbers.append(number)):
        yield
    if numbers:
        raise Interrupted(numbers[0])
