"""Cells for executors to compute: jobs as a run hands them out, and what came of each."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedbench import suite
from fedbench.cell.order import Order
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.results.claims import Claims
from fedbench.results.identity import identity
from fedbench.testing import smallest

SUITE = """\
suite: handed
defaults:
  backbone: smallest_vit
  adapter: {name: lora, rank: 1, alpha: 1, dropout: 0.0}
  data: squares
  capacities: [2, 1]
  train: {rounds: 2, max_steps: 1, batch_size: 2, optimizer: {name: sgd, lr: 0.1, momentum: 0.0, weight_decay: 0.0}}
scenarios: {one: {}}
methods: [noted]
"""


@dataclass
class Job:
    """A cell that was handed out: how it is called in messages, its order, the file in which it says that it began, and
    the events that were told of it."""

    name: str
    order: Order
    log: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def processes(self) -> list[int]:
        """Those that began to compute it, in order."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What stands on disk of it, at least a status."""
        return read_manifest(self.order.folder) or {"status": "not there"}


class Cells:
    """A folder of results for cells as small as can be, each claimed as it is handed out."""

    def __init__(self, folder: Path, claims: Claims) -> None:
        self.folder, self.claims, self.numbers, self.config = folder, claims, itertools.count(1), _config()

    def job(self, fault: str = "") -> Job:
        """The next cell, see `smallest.noted`."""
        number = next(self.numbers)
        log = self.folder / f"{number}.log"
        method = {**self.config["method"], "log": str(log), "fault": fault, "spared": os.getpid()}
        config = {**self.config, "method": method}
        own = {"config": config, "fingerprints": {}, "versions": {}, "reason": None, "traceback": None}
        id = identity(config, {}, {})
        order = Order(
            folder=self.folder / f"one-noted-0-{id}",
            manifest={"id": id, **own},
            device="cpu",
            plugins=[smallest.__file__],
            claim=self.claims.take(id),
        )
        return Job(f"job {number}", order, log)


@functools.cache
def _config() -> dict[str, Any]:
    """The configuration of the cell of SUITE."""
    registry = Registry([smallest.__file__])
    with TemporaryDirectory() as folder:
        file = Path(folder) / "suite.yaml"
        file.write_text(SUITE, encoding="utf-8")
        return suite.load(file, registry.catalogue, facts=Assets(registry)).points()[0].config


@contextmanager
def cells() -> Iterator[Cells]:
    """Cells in a folder that ends with the context."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as name, Claims(Path(name)) as claims:
        yield Cells(Path(name).resolve(), claims)


def faults_of(jobs: Sequence[Job], ended: Sequence[str]) -> Iterator[str]:
    """What is wrong with how jobs were computed and told of, a sentence each. ended: statuses that a manifest may have
    in the end."""
    for job in jobs:
        yield from _faults_of_one(job, ended)


def _faults_of_one(job: Job, ended: Sequence[str]) -> Iterator[str]:
    kinds, status, times = [event["event"] for event in job.events], job.manifest["status"], len(job.processes)
    if times == 0:
        why = job.manifest.get("reason") or f"its manifest: {status}"
        yield f"{job.name} was asked for, and its cell is not computed when `execute` returns ({why}): each is to be"
    if times > 1:
        yield (
            f"{job.name} was computed {times} times: two processes write into one folder; a job is run once, or again "
            "where its machine is gone, with the claim of fedbench.results.claims.handed_out"
        )
    if status not in ended:
        yield (
            f"the manifest of {job.name} says {status!r} when `execute` returns: wait for the end of every job, and "
            "where its process dies, write what became of it, or let fedbench.runs.executors.local run the job there"
        )
    if kinds.count("ended") != 1:
        yield (
            f"that {job.name} has ended was told {kinds.count('ended')} times: tell on_event once for each job, "
            'however it ended, {"event": "ended", "folder": ..., "status": ..., "reason": ..., "seconds": ...}'
        )
        return
    if kinds[0] != "started" or kinds[-1] != "ended":
        yield f"the events of {job.name} come as {', '.join(kinds)}: the first is `started`, the last `ended`"
    end = job.events[kinds.index("ended")]
    if lacking := [key for key in ("status", "reason", "seconds") if key not in end]:
        yield f"the event `ended` of {job.name} has no {', '.join(lacking)}"
    elif (end["status"], end["reason"]) != (status, job.manifest.get("reason")):
        yield (
            f"{job.name} is told to have ended as {end['status']!r} ({end['reason']}), and its manifest says "
            f"{status!r} ({job.manifest.get('reason')}): is it the answer of another job?"
        )
