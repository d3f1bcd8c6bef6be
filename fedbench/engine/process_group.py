"""The processes that compute one cell together: each runs the whole cell, and they share out what takes time.

Every member makes the same draws and keeps the same state, so that nothing but results has to travel. What is
shared out is cut in the same pieces whatever the number of members, and every piece is computed by one thread:
the results of one and of many are equal to the bit.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeVar

from safetensors.torch import load, save
from torch import Tensor

Result = TypeVar("Result")
FAILED = b"failed: "  # before the report of a member that could not do its part


class Gone(RuntimeError):
    """Another member has ended, and not by an exception."""


class ProcessGroup:
    """One member's place and links. The first hears all others; each of those, only the first."""

    def __init__(self, rank: int = 0, size: int = 1, links: Sequence[Connection] = ()) -> None:
        self.rank, self.size, self.links = rank, size, links

    def share(self, work: Sequence[float], compute: Callable[[int], dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """compute(i) for every i, each by one member; all members get all results, in order.

        work: how much each piece takes, roughly. What compute raises in any member is raised as it would be by one
        member alone; where it raises in another member and not here, that is a RuntimeError.
        """
        if self.size == 1:
            return [compute(i) for i in range(len(work))]
        try:
            return self._shared(work, compute)
        except Exception as error:
            if self.rank > 0 or isinstance(error, Gone):
                raise
            failed = error
        for i in range(len(work)):  # exceptions do not travel, and which is first depends on each process's pieces
            compute(i)
        raise failed

    def _shared(self, work: Sequence[float], compute: Callable[[int], dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        whose = dealt(work, self.size)
        mine = {i: compute(i) for i, rank in enumerate(whose) if rank == self.rank}
        parts: list[dict[str, Tensor]] = [{} for _ in work]
        for bundle in self._exchange(_bundled(mine)):
            for key, tensor in sorted(load(bundle).items()):
                i, _, name = key.split("|", 2)
                parts[int(i)][name] = tensor
        return parts

    def meet(self) -> None:
        """Return when every member has come as far. Raises RuntimeError where one could not."""
        if self.size > 1:
            self._exchange(b"")

    def _exchange(self, mine: bytes) -> list[bytes]:
        """Every member's bytes, by rank."""
        if self.rank > 0:
            (first,) = self.links
            first.send_bytes(mine)
            return [first.recv_bytes() for _ in range(self.size)]
        everyones = [mine] + [self._received(link) for link in self.links]
        for link in self.links:
            for one in everyones:
                link.send_bytes(one)
        return everyones

    @staticmethod
    def _received(link: Connection) -> bytes:
        try:
            message = link.recv_bytes()
        except (EOFError, OSError):  # between messages, or within one
            raise Gone("a process that computes this cell with this one was ended") from None
        if message.startswith(FAILED):
            report = message.removeprefix(FAILED).decode()
            raise RuntimeError(report.strip().splitlines()[-1]) from RuntimeError(report)
        return message


ALONE = ProcessGroup()


def together(size: int, work: Callable[[ProcessGroup], Result]) -> Result:
    """work(team) in `size` processes, copies of this one that share its memory until they write to it.

    Returns this process's own result; the others' are nothing but a help to it, and end with it. To be called
    before anything has run on a GPU, and before the first backward pass where there is one: copies cannot go on.
    """
    links: list[Connection] = []
    helpers: list[int] = []
    try:
        for rank in range(1, size):
            here, there = Pipe()
            pid = os.fork()
            if pid == 0:
                for other in (here, *links):
                    other.close()
                _help(ProcessGroup(rank, size, [there]), work)
            helpers.append(pid)
            there.close()
            links.append(here)
        return work(ProcessGroup(0, size, links))
    finally:
        for pid in helpers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _bundled(parts: dict[int, dict[str, Tensor]]) -> bytes:
    """Parts as bytes; the names are numbered, for safetensors does not keep their order, and no two share memory."""
    return save(
        {
            f"{i}|{k:06}|{name}": tensor.contiguous().clone()
            for i, part in parts.items()
            for k, (name, tensor) in enumerate(part.items())
        }
    )


def _help(team: ProcessGroup, work: Callable[[ProcessGroup], Any]) -> NoReturn:
    """The life of a copy: whatever happens, it ends here."""
    try:
        work(team)
    except EOFError:  # the first member is gone
        pass
    except BaseException:
        with suppress(OSError):
            team.links[0].send_bytes(FAILED + traceback.format_exc().encode())
    finally:
        os._exit(0)


def dealt(work: Sequence[float], size: int) -> list[int]:
    """For every piece the member that does it: the largest first, to the member that has least."""
    load_of, whose = [0.0] * size, [0] * len(work)
    for i in sorted(range(len(work)), key=lambda i: -work[i]):
        whose[i] = min(range(size), key=load_of.__getitem__)
        load_of[whose[i]] += work[i]
    return whose
