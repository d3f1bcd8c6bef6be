"""A run of a suite: prepare, compute, close, and the stages of a suite that is tuned first."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbench import machine
from fedbench import suite as suites
from fedbench.disk import hash_of_json, require_room
from fedbench.errors import Broke, UserError
from fedbench.processes import fork_server
from fedbench.registry.catalogue import references
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import READING, Registry
from fedbench.results import refuse_links
from fedbench.results.columns import ENDED, GIVEN_UP, HALVED, KEPT, PENDING
from fedbench.results.diff import flatten
from fedbench.results.files import HASHED, believed_manifest
from fedbench.results.index import merge_index, prepare_folder, read_index, write_expected
from fedbench.results.lock import suite_lock
from fedbench.results.pack import pack
from fedbench.results.packed_tables import folder_of, packed_tables
from fedbench.results.result import first_line
from fedbench.results.tuning import Key, merge_tunings, read_tunings, without_reports
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
from fedbench.runner.successive_halving import candidates_of, decide, leave, tunings_of
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.checkpoint import forget
from fedbench.suite import Suite
from fedbench.suite.references import reference
from fedbench.suite.shipped import timeout_in
from fedbench.types import SIZES
from fedbench.words import counted, shortened, visible

OFFLINE = "HF_HUB_OFFLINE"
Observe = Callable[[str, list[Cell], list[Cell]], Listen]


def load(path: str | Path, registry: Registry, **choices: Any) -> Suite:
    """Read a suite against what is installed. choices: of `fedbench.suite.load`."""
    return suites.load(path, registry.catalogue, facts=CachedFacts(registry), **choices)


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

    Args:
        scenarios, methods, seeds, variants: only these, see `Suite.points`.
        sets: `dotted.key=value` overrides.
        add: further methods.
        plugins: files with plugins of one's own.
        options: fields of `Options`.
        observe: `observe(suite, all cells, those to do)` returns a listener for events, and is called once for each
            stage of a suite that is tuned first.
        preparing: `preparing(done, of)` is called before that, as cells are prepared.
        text: of a suite that is in no file, which messages call by the path.

    Raises UserError for input that cannot work, before anything is written.
    """
    timeout = options.get("timeout") or timeout_in(str(path), text)
    registry = Registry(plugins, reading=min(READING, timeout or READING))
    sets = (*_engine(registry, options.get("executor") or "local", sets), *sets)
    suite = load(path, registry, sets=sets, add=add, profile=profile, data=data, text=text)
    chosen = Options(**{"timeout": suite.timeout} | {key: value for key, value in options.items() if value is not None})
    facts = CachedFacts(registry, suite.base)
    points = suite.points(scenarios, methods, seeds, variants)
    with Run(suite, registry, facts, chosen.results, observe, preparing) as work:
        if suite.tuning is None:
            return work.compute(cells_of(points, registry, facts), chosen)
        points = suite.candidates(scenarios, methods, variants)
        every, candidates = candidates_of(suite, points, registry, facts, work.folder)
        contests = chosen.of_shard(every, lambda one: hash_of_json(one.key))  # each is decided, reported in one shard
        here = replace(chosen, shard=None)
        winners = decide(contests, candidates, here, work.compute)
        if winners is not None:
            leave(contests, work.folder)
            work.suite = suite.tuned(winners)
            points = work.suite.points(scenarios, methods, seeds, variants)
            reporting = cells_of(points, registry, facts)
            if reporting or not work.outcome:
                work.compute(reporting, here, "reporting")
        assert work.outcome is not None
        lost = [] if winners is None else [one for one in contests if one.key not in winners]
        unstable = [one.key for one in lost if one.again().unstable]
        if unstable:
            without_reports(work.folder, suite.name, unstable)
        undecided = [one.key for one in lost if one.key not in unstable]
        return replace(work.outcome, undecided=_names(undecided), unstable=_names(unstable))


def _names(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(" · ".join(filter(None, key)) for key in keys)


class Run:
    """A run at work in a suite's folder, of which it holds the lock: its stages, one after the other.

    Attributes:
        suite: whose cells it computes; another one for each stage of a suite that is tuned.
        facts: data and backbones.
        folder: of the suite's results.
        outcome: of the stages so far.
    """

    def __init__(
        self,
        suite: Suite,
        registry: Registry,
        facts: CachedFacts,
        results: str,
        observe: Observe | None = None,
        preparing: Preparing = lambda done, of: None,
    ) -> None:
        """Begin; the lock is taken when the first stage writes.

        Args:
            results: the folder in which the suite's lies.
            observe, preparing: as of `run`.
        """
        self.suite, self.registry, self.facts = suite, registry, facts
        self.observe, self.preparing = observe, preparing
        self.folder = Path(results) / suite.name
        self.outcome: RunSummary | None = None
        self._held = ExitStack()
        self._holds = False

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: Any) -> None:
        self._held.close()

    def _hold(self) -> bool:
        """Take the lock of the folder; whether this run did not have it yet. Raises: UserError where another has it."""
        if self._holds:
            return False
        self._held.enter_context(suite_lock(self.folder, "fedbench run"))
        self._holds = True
        return True

    def compute(self, named: list[Cell], options: Options, stage: str = "") -> RunSummary:
        """Compute those cells that are not there yet, and return what has become of these and all stages before.

        What cannot work is refused before anything is written. Failures count over all stages.

        Args:
            named: all cells that are considered, of which a shard has some.
            options: how they are computed.
            stage: of a suite that runs in several.

        Raises: UserError.
        """
        if self.outcome and options.max_failures is not None:
            options = replace(options, max_failures=options.max_failures - self.outcome.failures)
        began, executor = time.monotonic(), _executor(self.registry, options)
        if not self.outcome:
            for warning in names_taken((cell.config for cell in named), executor["name"], self.registry):
                print(f"Warning: {visible(warning)}", file=sys.stderr)
        cells = options.of_shard(named, lambda cell: cell.id)
        missing = self._missing(cells, options)
        asked = options.asked()
        asked["workers"] = min(asked["workers"], len(missing))
        execute: Execute = self.registry.make("executor", executor, **asked)
        self._prepare(missing, executor["name"])
        if self._hold():  # the folder was not there, and another run may have begun and ended in it since
            missing = self._wanted(missing, options)
        self._write_names(named)
        self._tell("fedbench_suite_started", [cell.manifest() for cell in cells])
        name = f"{self.suite.name} · {stage}" if stage else self.suite.name
        candidates = frozenset(cell.id for cell in cells if cell.points[0].candidate is not None)
        listen = self.observe(name, cells, missing) if self.observe else lambda event: None
        ends = EndedCells(listen, options.max_failures, candidates)
        self._execute(execute, executor["name"], missing, options, ends)
        outcome = self._close(cells, missing, ends, began)
        self.outcome = outcome.after(self.outcome) if self.outcome else outcome
        return self.outcome

    def _missing(self, cells: Sequence[Cell], options: Options) -> list[Cell]:
        """The cells to compute. Raises: UserError where the folder cannot be used, before minutes of decoding."""
        if os.path.lexists(self.folder):
            refuse_links(self.folder)
            prepare_folder(self.folder)
            self._hold()
            read_tunings(self.folder)
        _tell_lost(self.folder)
        return self._wanted(cells, options)

    def _wanted(self, cells: Sequence[Cell], options: Options) -> list[Cell]:
        """Of these cells, those that are not there yet, or asked for again."""
        folders = folders_of(cells, self.folder)
        there = manifests_of(folders, self.folder)
        return [cell for cell in cells if options.wants(status(cell, folders[cell.id], there[cell.id]))]

    def _prepare(self, missing: Sequence[Cell], executor: str) -> None:
        """Have room, the server of workers, and the data of all cells. Raises: UserError."""
        if missing:
            require_room(self.folder)
            if warning := without_hub((cell.config for cell in missing), self.registry):
                print(f"Warning: {visible(warning)}", file=sys.stderr)
                os.environ[OFFLINE] = "1"  # of workers, so that none waits for it again
            if executor == "local":
                fork_server.start_server()  # it loads torch meanwhile
        for doubt in _prepare_data(missing, self.facts, BuildErrors(self.suite), self.preparing):
            print(f"Warning: {doubt}", file=sys.stderr)

    def _write_names(self, named: Sequence[Cell]) -> None:
        """Write the index, which from here on names every cell, so that `compare` can follow along."""
        prepare_folder(self.folder)
        _tell_replaced(self.folder, named)
        found = entries(named)
        asked = (entry.seed for entry in found if entry.candidate is None)  # by --seed, when the suite is first run
        merge_index(self.folder, self.suite.name, found, list(dict.fromkeys((*self.suite.seeds, *asked))))
        write_expected(self.folder, self.suite.name, self.suite.expected)
        if tunings := tunings_of(self.suite, named):
            merge_tunings(self.folder, self.suite.name, tunings)

    def _execute(
        self, execute: Execute, executor: str, missing: Sequence[Cell], options: Options, ends: EndedCells
    ) -> None:
        """Have the executor compute cells until none is left, or too many have failed."""
        git = machine.git_revision(Path(self.suite.path).resolve().parent) if missing else None
        left = {str(cell.folder_in(self.folder).resolve()): cell for cell in missing}

        def jobs() -> Iterator[str]:
            for folder in list(left):
                yield self._job(left.pop(folder), folder, len(missing), options, git).to_json()

        def on_event(event: dict[str, Any]) -> bool:
            ends.note(event)
            return ends.may_start

        while left and ends.may_start:
            before = len(left)
            execute(jobs(), on_event)
            if len(left) == before:
                raise UserError(
                    f"--executor {executor}: it returned without asking for a cell, though {len(left)} of "
                    "them are to be computed; an executor takes its jobs from the iterator that it is called with"
                )

    def _job(self, cell: Cell, folder: str, of: int, options: Options, git: str | None) -> CellJob:
        """The job of a worker.

        Args:
            of: how many cells are computed.
            git: the revision of the suite's folder.
        """
        return CellJob(
            folder=Path(folder),
            manifest={**cell.manifest(), "git": git},
            device=options.device.partition(":")[0],  # of several GPUs the executor lets it see one
            plugins=[str(file) for file in self.registry.files.values()],
            processes=max(1, options.workers() // max(1, of)),
            checkpoint_every=options.checkpoint_every,
            fresh=options.force,
            gpu_fraction=options.gpu_fraction,
            until=cell.until,
            registered=self.registry.found,
        )

    def _close(self, cells: Sequence[Cell], missing: Sequence[Cell], ends: EndedCells, began: float) -> RunSummary:
        """Read what is now on disk, remove what is left over, and call the plugins' hooks."""
        manifests, behind = {}, set()
        for cell in cells:
            folder = cell.folder_in(self.folder)
            manifests[cell.id] = manifest = _last(cell, folder, ends.of.get(cell.id))
            if manifest["status"] == "finished":
                forget(folder)  # where a worker was killed just before it did so
            elif manifest["status"] == HALVED and manifest.get("round", 0) < cell.rounds:
                behind.add(cell.id)
        with suppress(UserError):  # the disk is full or broke, or a table is: cells stay in folders for the next run
            pack(self.folder)
        self._tell("fedbench_suite_finished", list(manifests.values()))
        return RunSummary(
            suite=self.suite.name,
            folder=self.folder,
            manifests=manifests,
            asked=frozenset(cell.id for cell in missing),
            seconds=time.monotonic() - began,
            computed=frozenset(ends.of),
            behind=frozenset(behind),
            failures=ends.failures,
            gave_up=not ends.may_start,
            candidates=ends.candidates,
        )

    def _tell(self, hook: str, cells: list[dict[str, Any]]) -> None:
        self.registry.tell(hook, suite=self.suite.name, cells=cells, folder=str(self.folder))


def _tell_lost(folder: Path) -> None:
    """Say which packed tables cannot be used; the cells that have lost something are computed again."""
    if os.path.lexists(folder):
        tables = packed_tables(folder)
        tables.verify()
        tables.check(tables.files)
        for wrong in tables.damaged.values():
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
    if options.device.startswith("cuda") and not elsewhere and not machine.has_gpu():
        missing = "there is no NVIDIA driver on this machine; try --device cpu, or `fedbench doctor`"
        raise UserError(f"--device {options.device}: {missing}")
    if ":" in options.device and elsewhere:
        raise UserError(
            f"--device {options.device}: another machine's GPUs are its scheduler's to deal; say --device cuda"
        )
    return executor


def _engine(registry: Registry, executor: str | dict[str, Any], sets: Sequence[str]) -> list[str]:
    """The setting of the only engine that an executor has, where the caller names none."""
    name = reference(registry.catalogue, "executor", executor, "--executor")["name"]
    engine = registry.catalogue.find("executor", name).engine
    return [f"engine={engine}"] if engine and not any(one.startswith("engine=") for one in sets) else []


def _prepare_data(missing: Sequence[Cell], facts: CachedFacts, errors: BuildErrors, preparing: Preparing) -> list[str]:
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
                found = facts.prepare(cell.config)
                doubts |= dict.fromkeys(f"{cell.config['data']['name']}: {doubt}" for doubt in found)
            except UserError as error:
                prepared[dealt] = error
            except Exception:  # a plugin's own fault: its cells fail with a traceback, and the others run
                pass
        fault = prepared[dealt] or _absence(cell, facts.registry)
        if fault is not None and not isinstance(fault, Broke):
            errors.add(cell, fault)
    errors.raise_any(len(missing))
    return list(doubts)


def _absence(cell: Cell, registry: Registry) -> UserError | None:
    """Why a component of the cell cannot be made: its plugin ended or hung the process that imported it."""
    named = (registry.catalogue.find(kind, ref["name"]) for kind, ref in references(cell.config))
    return next((UserError(component.absent) for component in named if component.absent), None)


def _last(cell: Cell, folder: Path, end: dict[str, Any] | None) -> dict[str, Any]:
    """The last manifest of a cell; where its end could not be written down, that end is reported all the same."""
    manifest = believed_manifest(folder) or {**cell.manifest(), "status": PENDING}
    if end and end["status"] in GIVEN_UP and manifest["status"] not in ENDED:
        return {**manifest, "status": end["status"], "reason": end["reason"]}
    return manifest
