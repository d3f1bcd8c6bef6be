"""Estimates: what cells cost, from shapes, and how long they take, by past cells of the same kind."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench import machine
from fedbench.disk import cache_file, hash_of_json, keep, kept
from fedbench.errors import NotApplicable, UserError, summary_of, text_of
from fedbench.processes.supervisor import Child, ChildFailed, wait
from fedbench.registry.catalogue import references
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results.columns import HALVED, PENDING, RAN
from fedbench.results.loading import examine
from fedbench.runner.cells import Cell, Options
from fedbench.types import SIZES, Client, Dataset, Device, assignment

if TYPE_CHECKING:
    from fedbench.simulation.federated_data import FederatedData
    from fedbench.simulation.simulation import Simulation

Config = Mapping[str, Any]
Asked = tuple[str, Config]  # a cell: its id, and its configuration
Answer = dict[str, Any]
Send = Callable[[dict[str, Any]], None]

DEADLINE = 120.0  # seconds that the estimate of one cell may take
MACHINE = ("device", "cpu", "gpu")  # two machines with these in common are taken to be equally fast
# What cells may differ in whose estimates are kept in one file, see `of_one_method`.
OF_CELLS = ("seed", *SIZES, "devices", "fit", "participation", "faults")
OF_DATA = ("dataset", "partition", "backbone")
OF_METHODS = ("method", "adapter", "backbone", "profile", "precision", "engine")  # federated data do not depend on them
DATA = 64  # federated data that are kept
REGISTERED = 3_000_000  # clients of all federated data that are kept, unless one alone has more


# --- how long cells take ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Time:
    """What a cell takes in seconds, and where that is from: `run` (it ran) or `past runs`; None where neither says."""

    seconds: float | None
    source: str | None


@dataclass(frozen=True)
class Estimate:
    """What a suite takes, in seconds, on `workers` processes.

    Attributes:
        cells: by id, those that can be computed.
        total: of those whose time is known.
        left: of these, of those that have not run.
    """

    cells: dict[str, Time]
    total: float
    left: float
    workers: int
    device: str = "cpu"

    @property
    def unknown(self) -> int:
        """Of how many cells no past run tells the time."""
        return sum(time.seconds is None for time in self.cells.values())


def estimate(
    cells: Sequence[Cell],
    manifests: Mapping[str, Mapping[str, Any] | None],
    options: Options,
    shares: Mapping[str, float],
) -> Estimate:
    """The time of a suite, by cells of the same kinds that this machine has computed into the folder of results.

    Args:
        cells: of the suite, that can be computed.
        manifests: what is on disk of every cell, by its id.
        options: of the run, for its folder of results, processes and device.
        shares: by id, which part of a cell's rounds is to be expected, where not all are.
    """
    device = "cuda" if options.on_gpu else "cpu"
    before = {cell.id: manifests[cell.id] or {"status": PENDING} for cell in cells}
    times = {id: Time(found["seconds"], "run") for id, found in before.items() if found["status"] in RAN}
    waiting = [cell for cell in cells if cell.id not in times and before[cell.id]["status"] != HALVED]
    past = past_rounds(Path(options.results), machine.describe(device)) if waiting else {}
    for cell in waiting:
        a_round = past.get(but_seed_and_rounds(cell.config))
        if a_round is None:
            times[cell.id] = Time(None, None)
        else:
            times[cell.id] = Time(a_round * cell.rounds * shares.get(cell.id, 1.0), "past runs")
    total, left = (
        side_by_side([times[cell.id].seconds or 0.0 for cell in some], options.workers())
        for some in ([cell for cell in cells if cell.id in times], waiting)
    )
    return Estimate(times, total, left, options.workers(), device)


def side_by_side(seconds: Sequence[float], workers: int) -> float:
    """About the seconds until the last cell ends."""
    return max(sum(seconds) / workers, *seconds, 0.0)


def of_earlier_cells(folder: Path, missing: Sequence[Cell], options: Options) -> float | None:
    """About the seconds until all are computed, by finished cells of the suite, see `past_rounds`; None where one of
    the missing has no such past. Nothing is called, and no cost is estimated.

    Args:
        folder: of the suite's results.
        missing: the cells to compute.
        options: of the run, for its processes and device.
    """
    past = past_rounds(folder, machine.describe("cuda" if options.on_gpu else "cpu"))
    seconds = [past[which] * cell.rounds for cell in missing if (which := but_seed_and_rounds(cell.config)) in past]
    return side_by_side(seconds, options.workers()) if 0 < len(seconds) == len(missing) else None


def past_rounds(folder: Path, machine: Mapping[str, Any]) -> dict[str, float]:
    """Seconds a round of the finished cells under `folder` that such a machine computed, candidates of a tuning too, by
    `but_seed_and_rounds`. Of several the fastest counts, which others disturbed least. What cannot be read is passed
    over.

    Args:
        folder: the results of one suite or of all.
        machine: see `fedbench.machine.describe`.
    """
    seconds_of: dict[str, float] = {}
    try:
        past = examine([folder], candidates=True).results if folder.is_dir() else []
    except UserError:  # there are none
        return seconds_of
    for manifest in (one.manifest for one in past if one.status == "finished"):
        with suppress(KeyError, TypeError, AttributeError, ZeroDivisionError):
            there, which = manifest["machine"], but_seed_and_rounds(manifest["config"])
            seconds = manifest["seconds"] / manifest["config"]["train"]["rounds"]
            if seconds > 0 and all(there.get(key) == machine.get(key) for key in MACHINE):
                seconds_of[which] = min(seconds, seconds_of.get(which, seconds))
    return seconds_of


def but_seed_and_rounds(config: Config) -> str:
    """Equal for cells that differ in seed and rounds alone, whose rounds take equally long, whoever has which size."""
    train = {key: value for key, value in config["train"].items() if key != "rounds"}
    parts = {part: _drawn_once(config[part]) for part in ("data", "backbone") if part in config}
    for (key, way), values in assignment(config).items():
        parts[key] = {**config[key], way: sorted(values)}
    return hash_of_json({**config, **parts, "seed": None, "train": train})


def _drawn_once(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that say which draw it is: another one takes as long."""
    return {key: value for key, value in options.items() if key != "draw" and "seed" not in key}


# --- what cells cost ----------------------------------------------------------------------------------------------


def cost_estimates(
    cells: Sequence[Asked],
    facts: CachedFacts,
    timeout: float | None = None,
    preparing: Callable[[int, int], Any] = lambda done, of: None,
    *,
    kind: str = "totals",
    function: str = "fedbench.runner.estimate:estimates",
    **given: Any,
) -> dict[str, Answer]:
    """What each cell will cost, see `RoundRecords.totals`, or what another function answers of it, or why that is not
    known, see `Asking`; by its id. What is `refused`, `broke` or `failed` is not kept on disk.

    Args:
        cells: distinct ones; an id says all that its answer depends on but the code.
        facts: of the suite.
        timeout: seconds that the answer of one cell may take, DEADLINE by default.
        preparing: called with how many cells are done, of how many.
        kind: where answers are kept in the cache folder.
        function: as of `Asking`.
        given: further arguments of the function.
    """
    groups: dict[str, list[Asked]] = {}
    for cell in cells:
        groups.setdefault(of_one_method(cell[1]), []).append(cell)
    files = {
        common: cache_file(kind, [common, facts.stamp("method", group[0][1]["method"])])
        for common, group in groups.items()
    }
    before = {common: kept(file) or {} for common, file in files.items()}
    found = {id: before[common][id] for common, group in groups.items() for id, _ in group if id in before[common]}
    missing = {common: left for common, group in groups.items() if (left := [c for c in group if c[0] not in found])}
    if missing:
        preparing(len(found), len(cells))
        work = Asking(function, facts, timeout or DEADLINE, list(missing.values()), given)
        for _ in work.run():
            preparing(len(found) + len(work.found), len(cells))
        found |= work.found
        for common, left in missing.items():
            new = {id: found[id] for id, _ in left if not {"refused", "broke", "failed"} & found[id].keys()}
            if new:
                keep(files[common], {**(kept(files[common]) or {}), **new})
    return found


def of_one_method(config: Config) -> str:
    """Equal for cells that one method may serve, candidates for the learning rate too: no cost depends on it."""
    parts = {key: value for key, value in config.items() if key not in OF_CELLS}
    parts["data"] = {key: value for key, value in config["data"].items() if key != "partition"}
    return json.dumps(_but_learning_rate(parts), sort_keys=True)


def _but_learning_rate(config: Config) -> dict[str, Any]:
    optimizer = {key: value for key, value in config["train"]["optimizer"].items() if key != "lr"}
    return {**config, "train": {**config["train"], "optimizer": optimizer}}


class Costs:
    """The totals of cells, see `RoundRecords.totals`, each of a simulation of shapes alone.

    Federated data are kept for the cells that have them in common, and totals for candidates for a learning rate.
    """

    def __init__(self, facts: CachedFacts) -> None:
        self.facts = facts
        self._data: dict[str, FederatedData] = {}
        self._totals: dict[str, Answer] = {}

    def totals(self, config: Config) -> Answer:
        """Raises UserError, NotApplicable."""
        import torch

        from fedbench.simulation.simulation import Simulation

        if (same := json.dumps(_but_learning_rate(config), sort_keys=True)) not in self._totals:
            data, source = self._federated_data(config), self.facts.source(config["backbone"])
            with torch.device("meta"):
                one = Simulation(config, self.facts.registry, "meta", source, data.dataset, federated=data)
            self._totals[same] = one.records.totals(one.method, sum(data.sizes))
        return dict(self._totals[same])

    def _federated_data(self, config: Config) -> FederatedData:
        """The clients of a cell and how many images each has, without pixels."""
        import torch

        from fedbench.simulation.federated_data import FederatedData

        backbone = self.facts.backbone(config["backbone"])
        layers, size = backbone["num_layers"], backbone["image_size"]
        parts = {key: value for key, value in config.items() if key not in OF_METHODS}
        parts["train"] = {key: value for key, value in config["train"].items() if key != "optimizer"}
        key = json.dumps([parts, layers, size], sort_keys=True)
        if key not in self._data:
            dataset, source = self.facts.outline(config), self.facts.source(config["backbone"])
            with torch.device("meta"):
                made = FederatedData(config, self.facts.registry, dataset, layers, source, "meta")
            registered = sum(len(one.federation.clients) for one in (made, *self._data.values()))
            if len(self._data) == DATA or registered > REGISTERED:
                self._data.clear()
            self._data[key] = made
        return self._data[key]


def estimates(asked: Mapping[str, Any], send: Send) -> None:
    """In a child process: report what cells cost, see `cost_estimates`.

    Args:
        asked: the plugin `files` and the `base` of `CachedFacts`, and the `cells`.
        send: see `answer_each`.
    """
    machine.leave_alone()
    registry = Registry(asked["files"], in_place=True)
    costs = Costs(CachedFacts(registry, asked["base"]))
    answer_each(asked["cells"], registry, lambda id, config: costs.totals(config), send)


def feasible(asked: Mapping[str, Any], send: Send) -> None:
    """In a child process: report which sizes of cells' methods fit devices, as JSON under `rows`; see `outlooks`.

    Args:
        asked: as of `estimates`, and how many `images` a client has, and the `devices` of each cell by its id, the
            server's the last.
        send: see `answer_each`.
    """
    import torch

    from fedbench.devices.feasibility import outlooks
    from fedbench.simulation.simulation import Simulation

    registry = Registry(asked["files"], in_place=True)
    facts = CachedFacts(registry, asked["base"])

    def simulation_of(config: Config, dataset: Dataset, clients: Sequence[Client]) -> Simulation:
        source = facts.source(config["backbone"])
        with torch.device("meta"):
            return Simulation(config, registry, "meta", source, dataset, clients, fitting=True)

    def answer(id: str, config: Config) -> dict[str, Any]:
        *there, server = [Device(**one) for one in asked["devices"][id]]
        found = outlooks(config, facts, there, server, asked["images"], simulation_of)
        return {"rows": [one.to_json() for one in found]}

    answer_each(asked["cells"], registry, answer, send)


def answer_each(cells: list[Asked], registry: Registry, answer: Callable[[str, Config], Answer], send: Send) -> None:
    """In a child process: report what answer(id, config) gives for each cell, or why there is none, see `Asking`."""
    for id, config in cells:
        send({"event": "answered", "id": id, "found": _answered(id, config, registry, answer)})


def _answered(id: str, config: Config, registry: Registry, answer: Callable[[str, Config], Answer]) -> Answer:
    try:
        return answer(id, config)
    except NotApplicable as reason:
        return {"not_applicable": str(reason)}
    except UserError as error:
        return {"refused": text_of(error), "option": error.option}
    except Exception as error:  # of a plugin
        if isinstance(error, RuntimeError | TypeError) and "meta" in text_of(error).lower():  # tensors are shapes here
            return {"unknown": summary_of(error)}
        from fedbench.simulation.failure_reason import place  # imports torch, as this process has

        where = place(error, registry, config)
        return {"broke": f"{type(error).__name__}: {text_of(error)}{where}" if where else summary_of(error)}


# --- asking components about cells, in child processes -----------------------------------------------------------


@dataclass
class _Batch:
    """Cells that one child process is asked about, one after the other.

    Attributes:
        left: those to come.
        until: its deadline.
    """

    left: list[Asked]
    child: Child
    until: float


@dataclass
class Asking:
    """Cells that a function is asked about in as many child processes as there are cores.

    Cells of one method name go to one process: of a third-party one to its own, of others to one for each core. A
    reason stands in `found` under `not_applicable`; under `unknown` where a plugin needs values and has shapes; under
    `refused` where a method refuses its configuration, with the `option` to blame; under `broke` where a plugin raises,
    and under `failed` where it ends, hangs or crashes its process.

    Attributes:
        function: as of `Child`, which gives `cells` and the other keys of `_started` to `answer_each`.
        timeout: seconds that one cell may take.
        groups: cells, those of one method together.
        given: further arguments.
        found: the answers by the ids of cells.
    """

    function: str
    facts: CachedFacts
    timeout: float
    groups: list[list[Asked]]
    given: Mapping[str, Any] = field(default_factory=dict)
    found: dict[str, Answer] = field(default_factory=dict)

    def run(self) -> Iterator[None]:
        """Ask about all; yields whenever something is found."""
        waiting, at_work = self._shared_out(), list[_Batch]()
        try:
            while waiting or at_work:
                while waiting and len(at_work) < machine.cores():
                    at_work.append(self._started(waiting.pop(0)))
                ready = set(map(id, wait([batch.child for batch in at_work])))
                for batch in list(at_work):
                    if id(batch.child) in ready or time.monotonic() > batch.until:
                        if self._is_over(batch):
                            at_work.remove(batch)
                            waiting[:0] = [batch.left] if batch.left else []
                        yield
        finally:
            for batch in at_work:
                batch.child.close()

    def _shared_out(self) -> list[list[Asked]]:
        """The cells of each process, which loads the data and the backbone for all of them."""
        by_name: dict[str, list[Asked]] = {}
        for group in self.groups:
            by_name.setdefault(group[0][1]["method"]["name"], []).extend(group)
        registry, own = self.facts.registry, list[list[Asked]]()
        common: list[list[Asked]] = [[] for _ in range(machine.cores())]
        for cells in by_name.values():
            if any(registry.third_party(config) for _, config in cells):
                own.append(cells)
            else:
                min(common, key=len).extend(cells)
        return [*filter(None, common), *own]

    def _started(self, cells: list[Asked]) -> _Batch:
        registry = self.facts.registry
        files = [str(file) for file in registry.files.values()]
        asked = {"files": files, "base": os.path.abspath(self.facts.base), "cells": cells, **self.given}
        child = Child(self.function, asked)
        return _Batch(list(cells), child, time.monotonic() + self.timeout)

    def _is_over(self, batch: _Batch) -> bool:
        """Take what a child has found; whether it has ended, be it because its time was over."""
        ended = batch.child.ended
        for event in batch.child.heard():
            id, _ = batch.left.pop(0)
            assert id == event["id"]
            self.found[id] = event["found"]
            batch.until = time.monotonic() + self.timeout
        late = time.monotonic() > batch.until
        if not (ended or late or batch.child.answer):
            return False
        batch.child.close()
        if batch.left:
            self._fail(batch, f"was not done after {self.timeout:g} s" if late and not ended else "")
        return True

    def _fail(self, batch: _Batch, reason: str) -> None:
        """Note that the first cell of a batch has failed, and with it those of its method with the same plugins."""
        try:
            batch.child.result()
        except ChildFailed as error:
            reason = reason or error.reason
        first, config = batch.left[0]
        registry = self.facts.registry
        why = {"failed": f"{_who(registry, config)}: the process that called it {reason}"}
        named, common = _foreign(registry, config), of_one_method(config)
        self.found |= {
            id: why
            for id, its in batch.left
            if id == first or of_one_method(its) == common or (named and named <= _foreign(registry, its))
        }
        batch.left = [cell for cell in batch.left if cell[0] not in self.found]


def _who(registry: Registry, config: Config) -> str:
    """The third-party components of a cell that may be to blame: those of its method, if there are any."""
    found = registry.third_party(config) or [registry.catalogue.find("method", config["method"]["name"])]
    found = [one for one in found if one.kind not in OF_DATA] or found
    return " or ".join(f"the {one.kind} {one.name!r} of {registry.label(one.plugin)}" for one in found)


def _foreign(registry: Registry, config: Config) -> frozenset[str]:
    """The references to third-party components in a configuration, options and all."""
    named = {(one.kind, one.name) for one in registry.third_party(config)}
    return frozenset(json.dumps([kind, ref]) for kind, ref in references(config) if (kind, ref["name"]) in named)
