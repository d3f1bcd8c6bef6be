"""Rates from short probes, made by the executor that runs cells, and kept in the cache folder."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedbench.cell.order import Order
from fedbench.disk import cache_file, keep, kept
from fedbench.machine import package_version
from fedbench.registry.registry import Registry
from fedbench.runs.estimate.rates import Rates, kind_of
from fedbench.runs.plan import Cell

LONGEST = 120.0  # seconds after which a probe is ended
WAY = 2  # in which rates are measured: what was kept of another says something else


@dataclass(frozen=True)
class Place:
    """Where cells are to run. machine: see `fedbench.machine.describe` · workers: processes · cells: how many cells
    there are for them."""

    machine: Mapping[str, Any]
    workers: int
    cells: int

    @property
    def processes(self) -> int:
        """How many may compute a cell together, where there are fewer cells than workers (see `Run.compute`)."""
        return max(1, self.workers // max(1, self.cells))

    @property
    def busy(self) -> int:
        """How many are at work at a time."""
        return min(self.workers, self.cells * self.processes)


class Probes:
    """Probes of cells at one place; as many at a time as cells will run, so that they are slowed down alike."""

    def __init__(self, place: Place, registry: Registry) -> None:
        self.place, self.registry = place, registry
        self.seconds = 0.0  # spent on probes by this object
        self.reasons: dict[str, str] = {}  # why kinds have no rates
        self._loading = kept(self._loading_file)

    def rates(self, cells: Sequence[Cell], totals: Mapping[str, Mapping[str, Any]]) -> dict[str, Rates]:
        """The rates of every kind among `cells`, by one cell of each: the one with the median of FLOPs a round."""
        of_kind: dict[str, list[Cell]] = {}
        for cell in cells:
            of_kind.setdefault(kind_of(cell), []).append(cell)
        found = {which: value for which in of_kind if (value := kept(self._file(which)))}
        unknown = [which for which in of_kind if which not in found]
        if unknown:
            tried = self._try([_median(of_kind[which], totals) for which in unknown], totals)
            found |= dict(zip(unknown, tried, strict=True))
        return {which: Rates(**value) for which, value in found.items() if value}

    def loading(self, cells: Sequence[Cell], totals: Mapping[str, Mapping[str, Any]]) -> float:
        """Seconds until the first worker process is there, with torch loaded."""
        if self._loading is None:
            self._try(cells[:1], totals)
        return (self._loading or {"seconds": 0.0})["seconds"]

    def _try(self, cells: Sequence[Cell], totals: Mapping[str, Mapping[str, Any]]) -> list[dict[str, float] | None]:
        """Probe these cells, several times where there are fewer of them than processes; keep what is found."""
        began = time.monotonic()
        measured: dict[int, list[dict[str, float]]] = {i: [] for i in range(len(cells))}

        def on_event(event: dict[str, Any]) -> bool:
            i = int(Path(event["folder"]).name.partition("-")[0])
            if event["event"] == "ready" and self._loading is None:
                self._loading = {"seconds": time.monotonic() - began}
                keep(self._loading_file, self._loading)
            if "rates" in event:
                measured[i].append(event["rates"])
            elif event.get("reason") and not measured[i]:
                self.reasons.setdefault(kind_of(cells[i]), event["reason"])
            return True

        copies = -(-self.place.busy // len(cells))
        with tempfile.TemporaryDirectory() as folder:
            jobs = [
                self._order(cell, Path(folder, f"{i}-{copy}"), totals[cell.id]).to_json()
                for copy in range(copies)
                for i, cell in enumerate(cells)
            ]
            executor = {"name": "local"}
            self.registry.make("executor", executor, workers=self.place.busy, timeout=LONGEST)(jobs, on_event)
        self.seconds += time.monotonic() - began
        medians = [_medians(measured[i]) for i in range(len(cells))]
        for cell, rates in zip(cells, medians, strict=True):
            if rates:
                keep(self._file(kind_of(cell)), rates)
        return medians

    def _order(self, cell: Cell, folder: Path, totals: Mapping[str, Any]) -> Order:
        return Order(
            folder=folder,
            manifest=cell.manifest(),
            device=self.place.machine["device"],
            plugins=[str(file) for file in self.registry.files.values()],
            probe={"totals": totals, "processes": self.place.processes},
        )

    def _file(self, which: str) -> Path:
        place = [dict(self.place.machine), self.place.busy, self.place.processes]
        return cache_file("rates", [WAY, which, place])

    @property
    def _loading_file(self) -> Path:
        libraries = [package_version("torch"), package_version("timm")]
        return cache_file("rates", ["loading", dict(self.place.machine), libraries])


def _median(cells: Sequence[Cell], totals: Mapping[str, Mapping[str, Any]]) -> Cell:
    by_flops = sorted(cells, key=lambda cell: totals[cell.id]["flops"] / cell.config["train"]["rounds"])
    return by_flops[len(by_flops) // 2]


def _medians(measured: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    if not measured:
        return None
    return {field.name: statistics.median(one[field.name] for one in measured) for field in fields(Rates)}
