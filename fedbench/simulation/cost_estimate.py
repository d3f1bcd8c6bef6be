"""Cost estimates of cells: computed in child processes from shapes, then read from disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedbench import machine
from fedbench.disk import cache_file, keep, kept
from fedbench.errors import NotApplicable, UserError, summary_of, text_of
from fedbench.processes.supervisor import Child, ChildFailed, wait
from fedbench.registry.catalogue import references
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.types import SIZES

# What cells may differ in that have their method in common, see `of_one_method`.
OF_CELLS = ("seed", *SIZES, "devices", "fit", "participation", "faults")
OF_DATA = ("dataset", "partition", "backbone")

DEADLINE = 120.0  # seconds that the estimate of one cell may take

Config = Mapping[str, Any]
Cell = tuple[str, Config]  # its id, and its configuration
Found = dict[str, Any]
Send = Callable[[dict[str, Any]], None]


def cost_estimates(
    cells: Sequence[Cell],
    facts: CachedFacts,
    timeout: float | None = None,
    preparing: Callable[[int, int], Any] = lambda done, of: None,
    *,
    kind: str = "totals",
    function: str = "fedbench.simulation.method_costs:estimates",
    **given: Any,
) -> dict[str, Found]:
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
    groups: dict[str, list[Cell]] = {}
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
    optimizer = {key: value for key, value in config["train"]["optimizer"].items() if key != "lr"}
    parts["train"] = {**config["train"], "optimizer": optimizer}
    return json.dumps(parts, sort_keys=True)


def answer_each(cells: list[Cell], registry: Registry, answer: Callable[[str, Config], Found], send: Send) -> None:
    """In a child process: report what answer(id, config) gives for each cell, or why there is none, see `Asking`."""
    for id, config in cells:
        send({"event": "answered", "id": id, "found": _answered(id, config, registry, answer)})


def _answered(id: str, config: Config, registry: Registry, answer: Callable[[str, Config], Found]) -> Found:
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


def _who(registry: Registry, config: Config) -> str:
    """The third-party components of a cell that may be to blame: those of its method, if there are any."""
    found = registry.third_party(config) or [registry.catalogue.find("method", config["method"]["name"])]
    found = [one for one in found if one.kind not in OF_DATA] or found
    return " or ".join(f"the {one.kind} {one.name!r} of {registry.label(one.plugin)}" for one in found)


@dataclass
class _Batch:
    """Cells that one child process is asked about, one after the other. left: those to come · until: its deadline."""

    left: list[Cell]
    child: Child
    until: float


@dataclass
class Asking:
    """Cells that a function is asked about in as many child processes as there are cores.

    Cells of one method name go to one process: of a third-party one to its own, of others to one for each core. A
    reason stands in `found` under `not_applicable`; under `unknown` where a plugin needs values and has shapes; under
    `refused` where a method refuses its configuration, with the `option` to blame; under `broke` where a plugin raises,
    and under `failed` where it ends, hangs or crashes its process.

    function: as of `Child`, which gives `cells` and the other keys of `_started` to `answer_each` · timeout: seconds
    that one cell may take · groups: cells, those of one method together · given: further arguments · found: the answers
    by the ids of cells.
    """

    function: str
    facts: CachedFacts
    timeout: float
    groups: list[list[Cell]]
    given: Mapping[str, Any] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)

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

    def _shared_out(self) -> list[list[Cell]]:
        """The cells of each process, which loads the data and the backbone for all of them."""
        by_name: dict[str, list[Cell]] = {}
        for group in self.groups:
            by_name.setdefault(group[0][1]["method"]["name"], []).extend(group)
        registry, own = self.facts.registry, list[list[Cell]]()
        common: list[list[Cell]] = [[] for _ in range(machine.cores())]
        for cells in by_name.values():
            if any(registry.third_party(config) for _, config in cells):
                own.append(cells)
            else:
                min(common, key=len).extend(cells)
        return [*filter(None, common), *own]

    def _started(self, cells: list[Cell]) -> _Batch:
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


def _foreign(registry: Registry, config: Config) -> frozenset[str]:
    """The references to third-party components in a configuration, options and all."""
    named = {(one.kind, one.name) for one in registry.third_party(config)}
    return frozenset(json.dumps([kind, ref]) for kind, ref in references(config) if (kind, ref["name"]) in named)
