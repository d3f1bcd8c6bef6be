"""How long a suite will take: from cells of the same kind that ran here, or from a short probe of each kind."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench import machine
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.results.status import HALVED, PENDING, RAN
from fedbench.runs.estimate.past import past_rates
from fedbench.runs.estimate.probes import Place, Probes
from fedbench.runs.estimate.rates import Rates, kind_of
from fedbench.runs.plan import Cell, folders_of
from fedbench.runs.tail import longest_last_ones_first


@dataclass(frozen=True)
class Time:
    """What a cell takes in seconds, and where that is from: `run` (it ran), `past runs` or `probe`; None where the
    probe failed, for a reason."""

    seconds: float | None
    source: str
    reason: str | None = None


@dataclass(frozen=True)
class Estimate:
    """What a suite takes, in seconds, on `workers` processes.

    cells: by id, those that can be computed · total: all of them · left: those that have not run · loading: until the
    first worker is there, which is in both where something is left · probing: what was spent on probes just now.
    """

    cells: dict[str, Time]
    total: float
    left: float
    loading: float
    workers: int
    probing: float
    device: str = "cpu"

    @property
    def sources(self) -> set[str]:
        """Where the times of the cells that have not run are from."""
        return {time.source for time in self.cells.values() if time.seconds is not None} - {"run"}

    def summary(self) -> dict[str, Any]:
        """As `plan --json` has it."""
        return {
            "seconds": self.total,
            "seconds_left": self.left,
            "seconds_loading": self.loading,
            "seconds_probing": self.probing,
            "workers": self.workers,
        }


def estimate(
    cells: Sequence[Cell],
    totals: Mapping[str, Mapping[str, Any]],
    folder: Path,
    registry: Registry,
    device: str = "cpu",
    workers: int = 1,
    shares: Mapping[str, float] | None = None,
) -> Estimate:
    """The time of a suite whose results lie in `folder`, beside those of other suites.

    totals: of every cell by its id, see `Ledger.totals` · device: `cpu` or `cuda` · workers: processes side by side ·
    shares: by id, which part of a cell's rounds is to be expected, where not all are.
    """
    cells = [cell for cell in cells if "flops" in totals[cell.id]]
    folders = folders_of(cells, folder)
    manifests = {id: read_manifest(place) or {"status": PENDING} for id, place in folders.items()}
    ran = {id: found for id, found in manifests.items() if found["status"] in RAN}
    times = {id: Time(0.0 if "computed_as" in found else found["seconds"], "run") for id, found in ran.items()}
    waiting = [cell for cell in cells if cell.id not in times and manifests[cell.id]["status"] != HALVED]
    place = Place(machine.describe(device), workers, len(waiting))
    alone = {kind_of(cell) for cell in waiting} if place.processes == 1 else set()
    past = past_rates(folder.parent, alone, place.machine)
    probes = Probes(place, registry)
    probed = probes.rates([cell for cell in waiting if kind_of(cell) not in past], totals)
    loading = probes.loading(waiting, totals) if waiting else 0.0
    for cell in waiting:
        source = "past runs" if kind_of(cell) in past else "probe"
        rates: Rates | None = (past | probed).get(kind_of(cell))
        seconds = rates.seconds(cell.config["train"]["rounds"], totals[cell.id]) if rates else None
        seconds = seconds and seconds * (shares or {}).get(cell.id, 1.0)
        times[cell.id] = Time(seconds, source, probes.reasons.get(kind_of(cell)))

    def all_of(some: Sequence[Cell]) -> float:
        order = longest_last_ones_first(some, totals, workers)
        return loading + side_by_side((times[cell.id].seconds or 0.0 for cell in order), workers)

    return Estimate(
        cells=times,
        total=all_of([cell for cell in cells if cell.id in times]),
        left=all_of(waiting),
        loading=loading,
        workers=workers,
        probing=probes.seconds,
        device=device,
    )


def side_by_side(seconds: Iterable[float], workers: int) -> float:
    """Seconds until the last cell ends: in their order, each starts on the process that is free first."""
    free = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)
