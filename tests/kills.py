"""Cells that are killed: a worker process that SIGKILL ends, at a random instant or before one of its writes."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from command import TINY, write_suite

from fedbench.processes.supervisor import Child, wait
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest, read_rows
from fedbench.results.files import digest_of_cell
from fedbench.results.packed_tables import folder_of
from fedbench.runner.cells import cells_of
from fedbench.runner.runner import load
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.checkpoint import forget
from fedbench.simulation.state import STRUCTURE, TENSORS

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
) -> CellJob:
    """The order of a tiny cell that keeps a checkpoint after every round; `folder` is where its results will lie."""
    files = list(map(str, plugins))
    folder.mkdir(parents=True, exist_ok=True)
    path = write_suite(folder, method, {"rounds: 2": f"rounds: {rounds}", **(changes or {})})
    registry = Registry(files)
    (cell,) = cells_of(load(path, registry).points(), registry, CachedFacts(registry))
    place = cell.folder_in(folder / "s")
    return CellJob(place, cell.manifest(), "cpu", files, processes, checkpoint_every=0)


def moved(order: CellJob, folder: Path) -> CellJob:
    """The same order elsewhere."""
    return replace(order, folder=folder_of(folder / "s", order.folder.name))


def said(folder: str | Path) -> tuple[str, bytes, bytes]:
    """All that a finished cell says, its state to the bit."""
    cell = Path(folder)
    assert (manifest := read_manifest(cell))["status"] == "finished", manifest
    names = sorted(path.name for path in cell.iterdir())
    assert names == sorted(
        [
            "manifest.json",
            *(f"{kind}.parquet" for kind in ("eval", "rounds", "layers", "exchange", "answers")),
            TENSORS,
            STRUCTURE,
        ]
    ), names
    return (
        f"{digest_of_cell(cell, manifest)} {read_rows(cell, 'answers')}",
        (cell / TENSORS).read_bytes(),
        (cell / STRUCTURE).read_bytes(),
    )


def kill_until_done(order: CellJob, draw: random.Random, longest: float, toll: Toll, kills: int) -> None:
    """Compute a cell, whose every process is killed after up to `longest` seconds, until one gets to the end or
    there were so many kills in all."""
    began = time.monotonic()
    toll.cells += 1
    while True:
        with started(order) as child:
            toll.starts += 1
            until = time.monotonic() + (draw.uniform(0, longest) if toll.kills < kills else 60.0)
            while listens(child, until - time.monotonic()):
                pass
            to_the_end = child.ended
            done = to_the_end or (read_manifest(order.folder) or {}).get("status") == "finished"
            toll.kills += not done
            child.kill()
            while not child.ended:
                wait([child])
        toll.amid_writes += not done and half_written(order.folder)
        if done:
            if not to_the_end:  # killed after it had finished, before its checkpoints were gone: the run deletes them
                forget(order.folder)
            toll.seconds += time.monotonic() - began
            return


def half_written(cell: Path) -> bool:
    return any(path.suffix == ".tmp" for path in cell.glob(".*")) or bool([*cell.glob("checkpoint/.*")])


@contextmanager
def started(order: CellJob) -> Iterator[Child]:
    """A worker process that computes the order."""
    child = Child("fedbench.simulation.worker:compute", order.to_json())
    try:
        assert heard(child)[0] == {"event": "ready"}
        yield child
    finally:
        child.close()


def heard(child: Child, seconds: float = 60.0) -> list[dict[str, Any]]:
    """What a worker tells next; nothing where it has ended or was silent for so long."""
    until = time.monotonic() + seconds
    while not (events := child.heard()) and not child.ended and time.monotonic() < until:
        wait([child], max(0.0, until - time.monotonic()))
    return events


def listens(child: Child, seconds: float) -> bool:
    """Whether there is time left and somebody to listen to."""
    return bool(heard(child, seconds)) and seconds > 0


def killed_before_write(order: CellJob, number: int) -> bool:
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
