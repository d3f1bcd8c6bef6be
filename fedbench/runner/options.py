"""What a run may be told; none of it changes a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedbench import machine
from fedbench.results.status import GIVEN_UP, HALVED, KEPT
from fedbench.runner.cells import Cell
from fedbench.simulation.checkpoint import EVERY

Preparing = Callable[[int, int], Any]  # takes how many cells are prepared, of how many, as their number grows


def unheard(done: int, of: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Options:
    """See `run` of the command line; the names are the same."""

    results: str = "results"
    device: str = "auto"
    jobs: str | int = "auto"
    executor: str | dict[str, Any] = "local"
    timeout: float | None = None
    memory_limit: int | None = None
    retry_failed: bool = False
    max_failures: int | None = None
    force: bool = False
    shard: tuple[int, int] | None = None
    checkpoint_every: float = EVERY
    gpu_fraction: float | None = None

    def workers(self) -> int:
        """`auto` is one for each core, or as many as share a GPU where there is one."""
        if self.jobs != "auto":
            return int(self.jobs)
        return int(1 / (self.gpu_fraction or 1.0) + 1e-9) if self.on_gpu else machine.cores()

    @property
    def on_gpu(self) -> bool:
        """Whether cells are computed on one."""
        return self.device == "cuda" or (self.device == "auto" and machine.has_gpu())

    def gpu(self) -> float:
        """The share of a GPU that a cell asks a cluster for; with `auto` none, unless a share is named."""
        if self.device == "cpu":
            return 0.0
        return self.gpu_fraction or float(self.device == "cuda")

    def asked(self) -> dict[str, Any]:
        """What executors are given, if they have parameters of these names."""
        most = None if self.jobs == "auto" else int(self.jobs)
        limits = {"timeout": self.timeout, "memory_limit": self.memory_limit}
        return {"workers": self.workers(), "most": most, "gpu": self.gpu(), **limits}

    def of_shard(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells of the shard: (i, n) is the i-th of n, from 1. They are dealt out in the order of their ids, so
        that shards have as much to compute and mix methods."""
        part, parts = self.shard or (1, 1)
        mine = set(sorted(cell.id for cell in cells)[part - 1 :: parts])
        return [cell for cell in cells if cell.id in mine]

    def wants(self, status: str) -> bool:
        """Whether a cell of which this is on disk is to be computed (`status` of `runs.plan`)."""
        if status in (*KEPT, HALVED):
            return self.force
        return status not in GIVEN_UP or self.retry_failed or self.force
