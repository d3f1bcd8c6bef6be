"""Cells that are killed: a worker process that SIGKILL ends, at a random instant or before one of its writes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from command import TINY, write_suite

from fedbench.cell import worker
from fedbench.cell.events import Listener, Teller
from fedbench.cell.order import Order
from fedbench.cell.state import STRUCTURE, TENSORS
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results import content_hash, read_manifest, read_rows
from fedbench.runs.plan import cells_of
from fedbench.runs.runner import load

WRITES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")  # audit events, which come before the deed


@dataclass
class Toll:
    """What it took: kills, those that left something half written, starts, and seconds."""

    kills: int = 0
    amid_writes: int = 0
    starts: int = 0
    cells: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills in {self.seconds:.0f} s, {self.amid_writes} amid a write; "
            f"{self.starts} starts for {self.cells} cells"
        )


def order_of(
    folder: Path,
    method: str,
    rounds: int,
    processes: int = 1,
    changes: dict[str, str] | None = None,
    plugins: Sequence[Path] = (TINY,),
) -> Order:
    """The order of a tiny cell that keeps a checkpoint after every round; `folder` is where its results will lie."""
    files = list(map(str, plugins))
    folder.mkdir(parents=True, exist_ok=True)
    path = write_suite(folder, method, {"rounds: 2": f"rounds: {rounds}", **(changes or {})})
    registry = Registry(files)
    (cell,) = cells_of(load(path, registry).points(), registry, Assets(registry))
    place = folder / "s" / cell.folder_name()
    return Order(place, cell.manifest(), "cpu", files, processes, checkpoint_every=0)


def moved(order: Order, folder: Path) -> Order:
    """The same order elsewhere."""
    return replace(order, folder=folder / "s" / order.folder.name)


def said(folder: str | Path) -> tuple[str, bytes, bytes]:
    """All that a finished cell says, its state to the bit."""
    cell = Path(folder)
    assert (manifest := read_manifest(cell))["status"] == "finished", manifest
    assert sorted(path.name for path in cell.iterdir()) == sorted(
        [
            "manifest.json",
            *(f"{kind}.parquet" for kind in ("eval", "rounds", "layers", "exchange", "right")),
            TENSORS,
            STRUCTURE,
        ]
    )
    return (
        f"{content_hash(cell)} {read_rows(cell, 'right')}",
        (cell / TENSORS).read_bytes(),
        (cell / STRUCTURE).read_bytes(),
    )


def kill_until_done(order: Order, draw: random.Random, longest: float, toll: Toll, kills: int) -> None:
    """Compute a cell, whose every process is killed after up to `longest` seconds, until one gets to the end or
    there were so many kills in all."""
    began = time.monotonic()
    toll.cells += 1
    while True:
        with started(order) as (process, events):
            toll.starts += 1
            until = time.monotonic() + (draw.uniform(0, longest) if toll.kills < kills else 60.0)
            while listens(events, until - time.monotonic()):
                pass
            done = not process.is_alive() or (read_manifest(order.folder) or {}).get("status") == "finished"
            if not done:
                os.killpg(process.pid, signal.SIGKILL)
                toll.kills += 1
            process.join()
        toll.amid_writes += not done and half_written(order.folder)
        if done:
            toll.seconds += time.monotonic() - began
            return


def half_written(cell: Path) -> bool:
    return any(path.suffix == ".tmp" for path in cell.glob(".*")) or bool([*cell.glob("checkpoint/.*")])


@contextmanager
def started(order: Order) -> Iterator[tuple[BaseProcess, Listener]]:
    """A worker that has the order, forked from a process that has torch loaded."""
    context = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["fedbench.cell.worker"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=worker.main, args=(order.to_json(), Teller(theirs)))
    script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")  # pytest need not be imported
    try:
        process.start()
    finally:
        sys.modules["__main__"] = script
    theirs.close()
    events = Listener(ours)
    try:
        assert heard(events)[0] == {"event": "ready"}
        yield process, events
    finally:
        process.kill()
        process.join()
        events.close()


def heard(events: Listener, seconds: float = 60.0) -> list[dict[str, Any]]:
    """What a worker tells next; nothing where it has ended or was silent for so long."""
    return events.heard() if wait([events], max(0.0, seconds)) else []


def listens(events: Listener, seconds: float) -> bool:
    """Whether there is time left and somebody to listen to."""
    return bool(heard(events, seconds)) and seconds > 0


def killed_before_write(order: Order, number: int) -> bool:
    """Run an order in a copy of this process that is killed before the number-th change it makes to its cell's folder;
    whether there were so many."""
    pid = os.fork()
    if pid == 0:
        left = [number]
        sys.addaudithook(lambda event, given: _kill_at(event, given, str(order.folder), left))
        try:
            worker.run(order)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL


def _kill_at(event: str, given: tuple, folder: str, left: list[int]) -> None:
    if event in WRITES and str(given[0]).startswith(folder) and not (event == "open" and not given[2] & os.O_CREAT):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
