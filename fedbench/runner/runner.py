"""A run of a suite: prepare, compute, close, and the stages of a suite that is tuned first."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench import machine
from fedbench import suite as suites
from fedbench.disk import hash_of_json, require_room
from fedbench.errors import Broke, UserError
from fedbench.processes import fork_server
from fedbench.registry.assets import Assets
from fedbench.registry.catalogue import references
from fedbench.registry.registry import READING, Registry
from fedbench.results import refuse_links
from fedbench.results.columns import ENDED, GIVEN_UP, HALVED, KEPT, PENDING, TAKEN
from fedbench.results.diff import flatten
from fedbench.results.index import merge_index, prepare_folder, read_index, write_expected
from fedbench.results.lock import is_held
from fedbench.results.manifest import HASHED, believed_manifest, computation, ended_since
from fedbench.results.pack import pack
from fedbench.results.result import first_line
from fedbench.results.store import folder_of, store_of
from fedbench.results.tuning import Key, merge_searches, read_searches, without_reports
from fedbench.runner.cells import (
    BuildErrors,
    Cell,
    Options,
    Preparing,
    cells_of,
    entries,
    folders_of,
    manifests_of,
    names_taken,
    status,
    without_hub,
)
from fedbench.runner.local import Execute
from fedbench.runner.progress import EndedCells, Listen, RunSummary
from fedbench.runner.successive_halving import decide, leave, searches_of, tried
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.checkpoint import forget
from fedbench.suite import Suite
from fedbench.suite.references import reference
from fedbench.suite.shipped import timeout_in
from fedbench.types import SIZES
from fedbench.words import counted, shortened, visible

OFFLINE = "HF_HUB_OFFLINE"
POLL = 0.5  # seconds between two looks at cells that other runs compute
Observe = Callable[[str, list[Cell], list[Cell]], Listen]


def load(path: str | Path, registry: Registry, **choices: Any) -> suites.Suite:
    """Read a suite against what is installed. choices: of `fedbench.suite.load`."""
    return suites.load(path, registry.catalogue, facts=Assets(registry), **choices)


@contextmanager
def _hub_asked_once() -> Iterator[None]:
    """Inside, the Hub is asked at most once. What that sets for workers is set back at the end."""
    before = os.environ.get(OFFLINE)
    machine.hub_answers.cache_clear()
    try:
        yield
    finally:
        os.environ.update({OFFLINE: before}) if before is not None else os.environ.pop(OFFLINE, None)


@_hub_asked_once()
def run(
    path: str | Path,
    *,
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    variants: Sequence[str] = (),
    sets: Sequence[str] = (),
    add: Sequence[str] = (),
    profile: str | None = None,
    data: str | None = None,
    plugins: Sequence[str] = (),
    observe: Observe | None = None,
    preparing: Preparing = lambda done, of: None,
    text: str | None = None,
    **options: Any,
) -> RunSummary:
    """Run a suite and return what is now on disk.

    scenarios, methods, seeds, variants: only these, see `Suite.points` · sets: `dotted.key=value` overrides · add:
    further methods · plugins: files with plugins of one's own · options: fields of `Options` · observe(suite, all
    cells, those to do) returns a listener for events, and is called once for each stage of a suite that is tuned first
    · preparing(done, of): is called before that, as cells are prepared · text: of a suite that is in no file, which
    messages call by the path. Raises UserError for input that cannot work, before anything is written.
    """
    timeout = options.get("timeout") or timeout_in(str(path), text)
    registry = Registry(plugins, reading=min(READING, timeout or READING))
    suite = load(path, registry, sets=sets, add=add, profile=profile, data=data, text=text)
    chosen = Options(**{"timeout": suite.timeout} | {key: value for key, value in options.items() if value is not None})
    stages = _Stages(suite, registry, Assets(registry, suite.base), observe, preparing)
    points = suite.points(scenarios, methods, seeds, variants)
    if suite.tuning is None:
        return stages.compute(cells_of(points, registry, stages.assets), chosen)
    candidates, folder = suite.candidates(scenarios, methods, variants), Path(chosen.results) / suite.name
    every = tried(suite, candidates, registry, stages.assets, folder)
    contests = chosen.of_shard(every, lambda one: hash_of_json(one.key))  # each is decided and reported in one shard
    here = replace(chosen, shard=None)
    winners = decide(contests, here, stages.compute)
    if winners is not None:
        leave(contests, folder)
        stages.suite = suite.tuned(winners)
        points = stages.suite.points(scenarios, methods, seeds, variants)
        reporting = cells_of(points, registry, stages.assets)
        if reporting or not stages.outcome:
            stages.compute(reporting, here, "reporting")
    assert stages.outcome is not None
    lost = [] if winners is None else [one for one in contests if one.key not in winners]
    unstable = [one.key for one in lost if one.contest.unstable]
    if unstable:
        without_reports(folder, suite.name, unstable)
    undecided = [one.key for one in lost if one.key not in unstable]
    return replace(stages.outcome, undecided=_names(undecided), unstable=_names(unstable))


def _names(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(" · ".join(filter(None, key)) for key in keys)


@dataclass
class _Stages:
    """The stages of a run, one after the other; outcome: of those so far."""

    suite: suites.Suite
    registry: Registry
    assets: Assets
    observe: Observe | None
    preparing: Preparing
    outcome: RunSummary | None = None

    def compute(self, cells: list[Cell], options: Options, stage: str = "") -> RunSummary:
        """Compute those cells that are not there yet. Failures count over all stages."""
        if self.outcome and options.max_failures is not None:
            options = replace(options, max_failures=options.max_failures - self.outcome.failures)
        if not self.outcome:
            executor = _executor(self.registry, options)["name"]
            for warning in names_taken((cell.config for cell in cells), executor, self.registry):
                print(f"Warning: {visible(warning)}", file=sys.stderr)
        run = Run(self.suite, cells, self.registry, self.assets, options, stage, self.preparing)
        outcome = run.close(run.compute(self.observe))
        self.outcome = outcome.after(self.outcome) if self.outcome else outcome
        return self.outcome


class Run:
    """A run that can begin: nothing of what it was given is refused any more.

    folder: of the suite's results · cells: those of this shard · candidates: the ids of those that a tuning tries ·
    before: what was on disk of each, by its id · missing: those to compute · executor: the name of what computes them ·
    execute: the executor, made for them.
    """

    def __init__(
        self,
        suite: Suite,
        named: list[Cell],
        registry: Registry,
        assets: Assets,
        options: Options,
        stage: str = "",
        preparing: Preparing = lambda done, of: None,
    ) -> None:
        """Find what is to be computed, and refuse what cannot work before anything is written. From here on the index
        names every cell, so that `compare` can follow along. named: all cells that are considered, of which a shard
        has some · stage: of a suite that runs in several · preparing: see `Preparing`. Raises UserError."""
        self.suite, self.registry, self.options, self.stage = suite, registry, options, stage
        self.began = time.monotonic()
        executor = _executor(registry, options)
        self.executor = executor["name"]
        self.folder = folder = Path(options.results) / suite.name
        if os.path.lexists(folder):
            refuse_links(folder)
            prepare_folder(folder)  # refused now, not after minutes of decoding
            read_searches(folder)
        self.cells = options.of_shard(named, lambda cell: cell.id)
        self.candidates = frozenset(cell.id for cell in self.cells if cell.points[0].candidate is not None)
        folders = folders_of(self.cells, folder)
        _tell_lost(folder)
        self.before = before = manifests_of(folders, folder)
        self.missing = [cell for cell in self.cells if options.wants(status(cell, folders[cell.id], before[cell.id]))]
        asked = options.asked()
        asked["workers"] = min(asked["workers"], len(self.missing))
        self.execute: Execute = registry.make("executor", executor, **asked)
        if self.missing:
            require_room(folder)
            if warning := without_hub((cell.config for cell in self.missing), registry):
                print(f"Warning: {visible(warning)}", file=sys.stderr)
                os.environ[OFFLINE] = "1"  # of workers, so that none waits for it again
            if self.executor == "local":
                fork_server.start_server()  # it loads torch meanwhile
        for doubt in _prepare_data(self.missing, assets, BuildErrors(suite), preparing):
            print(f"Warning: {doubt}", file=sys.stderr)
        prepare_folder(folder)
        _tell_replaced(folder, named)
        merge_index(folder, suite.name, entries(named), suite.seeds)
        write_expected(folder, suite.name, suite.expected)
        if searches := searches_of(suite, named):
            merge_searches(folder, suite.name, searches)

    def compute(self, observe: Observe | None = None) -> EndedCells:
        """Have the executor compute cells until none is left, or too many have failed."""
        self._call("fedbench_suite_started", [cell.manifest() for cell in self.cells])
        name = f"{self.suite.name} · {self.stage}" if self.stage else self.suite.name
        listen = observe(name, self.cells, self.missing) if observe else lambda event: None
        ends = EndedCells(listen, self.options.max_failures, self.candidates)
        queue = JobQueue(self.missing, self.before, self.folder, ends.note)
        git = machine.git_revision(Path(self.suite.path).resolve().parent) if self.missing else None

        def on_event(event: dict[str, Any]) -> bool:
            again = event["event"] == "ended" and not queue.ended(event["folder"], event["status"])
            if not again:  # it was not reported before
                ends.note(event)
            return ends.may_start

        while ends.may_start and queue.wait():
            asked = queue.asked
            self.execute((self._job(cell, git).to_json() for cell in queue.cells()), on_event)
            if queue.asked == asked:
                raise UserError(
                    f"--executor {self.executor}: it returned without asking for a cell, though {len(queue.left)} of "
                    "them are to be computed; an executor takes its jobs from the iterator that it is called with"
                )
        return ends

    def close(self, ends: EndedCells) -> RunSummary:
        """Read what is now on disk, remove what is left over, and call the plugins' hooks."""
        manifests, behind = {}, set()
        folders = folders_of(self.cells, self.folder)
        for cell in self.cells:
            place = folders[cell.id]
            manifests[place.name] = _last(cell, place, ends.of.get(place.name))
            if manifests[place.name]["status"] == "finished":
                forget(place)  # where a worker was killed just before it did so
            elif manifests[place.name]["status"] == HALVED and manifests[place.name].get("round", 0) < cell.rounds:
                behind.add(place.name)
        with suppress(UserError):  # the disk is full or broke, or a table is: cells stay in folders for the next run
            pack(self.folder)
        self._call("fedbench_suite_finished", list(manifests.values()))
        return RunSummary(
            suite=self.suite.name,
            folder=self.folder,
            manifests=manifests,
            asked=frozenset(folders[cell.id].name for cell in self.missing),
            seconds=time.monotonic() - self.began,
            computed=ends.ran,
            elsewhere=frozenset(ends.elsewhere),
            behind=frozenset(behind),
            failures=ends.failures,
            gave_up=not ends.may_start,
            candidates=frozenset(name for name in manifests if name in self.candidates),
        )

    def _call(self, hook: str, cells: list[dict[str, Any]]) -> None:
        self.registry.tell(hook, suite=self.suite.name, cells=cells, folder=str(self.folder))

    def _job(self, cell: Cell, git: str | None) -> CellJob:
        """The job of a worker. git: the revision of the suite's folder."""
        options = self.options
        return CellJob(
            folder=cell.folder_in(self.folder).resolve(),
            manifest={**cell.manifest(), "git": git},
            device=options.device,
            plugins=[str(file) for file in self.registry.files.values()],
            processes=max(1, options.workers() // max(1, len(self.missing))),
            checkpoint_every=options.checkpoint_every,
            fresh=options.force,
            gpu_fraction=options.gpu_fraction,
            until=cell.until,
            seen=computation(self.before[cell.id]),
            registered=self.registry.found,
        )


class JobQueue:
    """The cells that a run has still to compute, while other runs on the folder may compute the same ones."""

    def __init__(
        self,
        cells: Iterable[Cell],
        before: Mapping[str, dict[str, Any] | None],
        suite_folder: Path,
        report: Callable[[dict[str, Any]], Any],
    ) -> None:
        """Args:
        cells: to compute.
        before: by id, the manifest that was on disk when the run found that it has to compute the cell.
        suite_folder: where their folders are.
        report: takes the event `elsewhere` (`folder`, `status`, `reason`) for every cell that another run has
            computed, and `waiting` (`cells`) once when nothing is left but cells that others compute.
        """
        self.folder, self.before, self.report = suite_folder, before, report
        self.left = {cell.id: cell for cell in cells}
        self.handed: dict[str, Cell] = {}
        self.asked = 0  # how often somebody began to ask for cells
        self.waiting = False

    def wait(self) -> bool:
        """Wait until a cell can be computed; False when there is none to wait for. Asked while no cell is at work: what
        was handed out and has not ended is lost."""
        self.handed.clear()
        while self.left:
            if next(self._free(), None):
                return True
            if self.left and not self.waiting:
                self.waiting = True
                self.report({"event": "waiting", "cells": len(self.left)})
            if self.left:
                time.sleep(POLL)
        return False

    def cells(self) -> Iterator[Cell]:
        """Every cell that no other run computes, handed out when it is asked for."""
        self.asked += 1
        for cell in self._free():
            self.handed[cell.id] = self.left.pop(cell.id)
            yield cell

    def _free(self) -> Iterator[Cell]:
        """Those that no other run has computed or computes."""
        for cell in list(self.left.values()):
            if cell.id in self.left and not self._is_done(cell) and not is_held(cell.folder_in(self.folder)):
                yield cell

    def ended(self, folder: str, status: str) -> bool:
        """Note the end of a cell. One that another run computes is left again. False where it was not handed out."""
        cell = self.handed.pop(Path(folder).name, None)
        if cell is not None and status == TAKEN:
            self.left[cell.id] = cell
        return cell is not None

    def _is_done(self, cell: Cell) -> bool:
        """Whether a cell has ended in another run since this one began: also one that is run again."""
        place = cell.folder_in(self.folder)
        manifest = believed_manifest(place)
        if manifest is None or not ended_since(manifest, computation(self.before[cell.id])):
            return False
        del self.left[cell.id]
        end = {"folder": str(place), "status": manifest["status"], "reason": manifest["reason"]}
        self.report({"event": "elsewhere", **end})
        return True


def _tell_lost(folder: Path) -> None:
    """Say which packed tables cannot be used; the cells that have lost something are computed again."""
    if os.path.lexists(folder):
        store = store_of(folder)
        store.verify()
        store.check(store.files)
        for wrong in store.damaged.values():
            print(
                f"Warning: {first_line(wrong)}. The cells that lost a part with it are computed again.", file=sys.stderr
            )


def _tell_replaced(folder: Path, cells: Sequence[Cell]) -> None:
    """Say which names of results get other cells now: the suite was changed, or another one has its name."""
    index, by_id = read_index(folder), {cell.id: cell for cell in cells}
    before = {entry.key: entry for entry in index.entries} if index else {}
    pairs = [(before[new.key], new) for new in entries(cells) if new.key in before]
    other = [(old, by_id[new.cell]) for old, new in pairs if old.cell != new.cell]
    was_there = ((old.title, cell, believed_manifest(folder_of(folder, old.cell))) for old, cell in other)
    gone = [(title, cell, was) for title, cell, was in was_there if was and was["status"] in KEPT]
    if gone:
        title, cell, was = gone[0]
        old, new = (dict(flatten({part: of[part] for part in HASHED})) for of in (was, cell.manifest()))
        apart = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
        print(
            f"Warning: {folder}: {counted(len(gone), 'result')} will no longer be shown, because this suite has other "
            f"settings under the same names: {title} differs in {shortened(apart, 3)}. Another folder (--results DIR) "
            "keeps both.",
            file=sys.stderr,
        )


def _executor(registry: Registry, options: Options) -> dict[str, Any]:
    """What runs the cells, as a reference. Raises: UserError where it needs a GPU and this machine has none."""
    executor = reference(registry.catalogue, "executor", options.executor, "--executor")
    elsewhere = registry.catalogue.find("executor", executor["name"]).elsewhere
    if options.device == "cuda" and not elsewhere and not machine.has_gpu():
        raise UserError(
            "--device cuda: there is no NVIDIA driver on this machine; try --device cpu, or `fedbench doctor`"
        )
    return executor


def _prepare_data(missing: Sequence[Cell], assets: Assets, errors: BuildErrors, preparing: Preparing) -> list[str]:
    """Decode and deal the data of all cells before the first one starts; returns what is wrong with them all the same.

    A cell whose data cannot be used fails by itself, and the others run. Raises: UserError with the faults of all
    cells where none of them can run, or where an option in the suite is to blame.
    """
    prepared, doubts = dict[str, UserError | None](), dict[str, None]()
    for done, cell in enumerate(missing):
        preparing(done, len(missing))
        dealt = json.dumps([cell.config.get(key) for key in ("data", "backbone", "seed", "devices", *SIZES)])
        if dealt not in prepared:
            prepared[dealt] = None
            try:
                found = assets.prepare(cell.config)
                doubts |= dict.fromkeys(f"{cell.config['data']['name']}: {doubt}" for doubt in found)
            except UserError as error:
                prepared[dealt] = error
            except Exception:  # a plugin's own fault: its cells fail with a traceback, and the others run
                pass
        fault = prepared[dealt] or _absence(cell, assets.registry)
        if fault is not None and not isinstance(fault, Broke):
            errors.add(cell, fault)
    errors.raise_any(len(missing))
    return list(doubts)


def _absence(cell: Cell, registry: Registry) -> UserError | None:
    """Why a component of the cell cannot be made: its plugin ended or hung the process that imported it."""
    named = (registry.catalogue.find(kind, ref["name"]) for kind, ref in references(cell.config))
    return next((UserError(component.absent) for component in named if component.absent), None)


def _last(cell: Cell, place: Path, end: dict[str, Any] | None) -> dict[str, Any]:
    """The last manifest of a cell; where its end could not be written down, that end is reported all the same."""
    manifest = believed_manifest(place) or {**cell.manifest(), "status": PENDING}
    if end and end["status"] in GIVEN_UP and manifest["status"] not in ENDED:
        return {**manifest, "status": end["status"], "reason": end["reason"]}
    return manifest
