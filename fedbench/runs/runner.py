"""Runs the cells of a suite: what is finished is kept, what is equal runs once, what fails stays alone."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench import machine
from fedbench import suite as suites
from fedbench.cell.checkpoint import EVERY, forget
from fedbench.errors import UserError
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest, refuse_links
from fedbench.results.claims import Claim, Claims
from fedbench.results.expected import write_expected
from fedbench.results.index import merge_index, prepare_folder
from fedbench.results.tables import ENDED
from fedbench.room import require_room
from fedbench.runs.backlog import Backlog
from fedbench.runs.plan import Work, entries, status, works
from fedbench.suite.references import reference

KEPT = ("finished", "not_applicable")
GIVEN_UP = ("failed", "timeout")


Listen = Callable[[dict[str, Any]], None]
Observe = Callable[[str, list[Work], list[Work]], Listen]


@dataclass(frozen=True)
class Options:
    """What a run may be told; none of it changes a result."""

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
        on_gpu = self.device == "cuda" or (self.device == "auto" and machine.has_gpu())
        return int(1 / (self.gpu_fraction or 1.0) + 1e-9) if on_gpu else machine.cores()

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

    def of_shard(self, works: Sequence[Work]) -> list[Work]:
        """The works of the shard: (i, n) is the i-th of n, from 1. They are dealt out in the order of their ids, so
        that shards are of one size and mix methods."""
        part, parts = self.shard or (1, 1)
        mine = sorted(work.id for work in works)[part - 1 :: parts]
        return [work for work in works if work.id in mine]


@dataclass
class Outcome:
    """What a run left behind: the suite's folder, and every cell's last manifest by folder name.

    ran: how many cells were to be computed and fell to this run · elsewhere: how many other runs computed meanwhile ·
    gave_up: `max_failures` was reached.
    """

    suite: str
    folder: Path
    manifests: dict[str, dict[str, Any]]
    ran: int
    seconds: float
    elsewhere: int = 0
    gave_up: bool = False
    titles: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        return Counter(manifest["status"] for manifest in self.manifests.values())

    @property
    def left(self) -> int:
        """How many cells have not ended."""
        return sum(manifest["status"] not in ENDED for manifest in self.manifests.values())

    @property
    def failed(self) -> dict[str, dict[str, Any]]:
        return {name: m for name, m in self.manifests.items() if m["status"] in GIVEN_UP}


def load(path: str | Path, registry: Registry, **choices: Any) -> suites.Suite:
    """Read a suite against what is installed. choices: `sets`, `profile`, `data` of `fedbench.suite.load`."""
    return suites.load(path, registry.catalogue, facts=Assets(registry), **choices)


def run(
    path: str | Path,
    *,
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    sets: Sequence[str] = (),
    profile: str | None = None,
    data: str | None = None,
    plugins: Sequence[str] = (),
    observe: Observe | None = None,
    **options: Any,
) -> Outcome:
    """Run a suite and return what is now on disk.

    scenarios, methods, seeds: only these · sets: `dotted.key=value` overrides · plugins: files with plugins of
    one's own · options: fields of `Options` · observe(suite, all works, those to do) returns a listener for events.
    Raises UserError for input that cannot work, before anything is written.
    """
    registry = Registry(plugins)
    suite = load(path, registry, sets=sets, profile=profile, data=data)
    chosen = Options(**{"timeout": suite.timeout} | {key: value for key, value in options.items() if value is not None})
    cells = suite.points(scenarios=scenarios, methods=methods, seeds=seeds)
    facts = Assets(registry)
    return execute(suite, works(cells, registry, facts), registry, facts, chosen, observe)


def execute(
    suite: suites.Suite,
    chosen: list[Work],
    registry: Registry,
    facts: Assets,
    options: Options,
    observe: Observe | None = None,
) -> Outcome:
    """Run what is not on disk yet; the index names every cell from the start, so that `compare` can follow along."""
    began = time.monotonic()
    executor = _executor(registry, options)
    folder = Path(options.results) / suite.name
    if os.path.lexists(folder):
        refuse_links(folder)
        prepare_folder(folder)  # refused now, not after minutes of decoding
    named, chosen = chosen, options.of_shard(chosen)
    before = {work.id: read_manifest(work.folder_in(folder)) for work in chosen}
    missing = [work for work in chosen if _is_missing(status(work, folder), options)]
    given = options.asked()
    run_all = registry.make("executor", executor, **{**given, "workers": min(given["workers"], len(missing))})
    if missing:
        require_room(folder)
    _prepare_data(missing, facts)
    prepare_folder(folder)
    merge_index(folder, suite.name, names := entries(named, folder))
    write_expected(folder, suite.name, suite.expected)
    registry.tell("fedbench_suite_started", suite=suite.name, cells=[work.manifest() for work in chosen])
    ends = _Ends(observe(suite.name, chosen, missing) if observe else lambda event: None, options.max_failures)
    with Claims(folder) as claims:
        backlog = Backlog(missing, before, folder, claims, ends.note)
        _compute(backlog, run_all, ends, _jobs(suite, missing, folder, registry, options), executor["name"])
    if (now := entries(named, folder)) != names:  # another run has made the folder of an equal cell of its own
        merge_index(folder, suite.name, now)
    manifests = {}
    for work in chosen:
        place = work.folder_in(folder)
        manifests[place.name] = _last(work, place, ends.of.get(place.name))
        if manifests[place.name]["status"] == "finished":
            forget(place)  # where a worker was killed just before it did so
    registry.tell("fedbench_suite_finished", suite=suite.name, cells=list(manifests.values()))
    return Outcome(
        suite=suite.name,
        folder=folder,
        manifests=manifests,
        ran=len(missing) - backlog.elsewhere,
        seconds=time.monotonic() - began,
        elsewhere=backlog.elsewhere,
        gave_up=not ends.may_start,
        titles={work.folder_in(folder).name: work.title for work in chosen},
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


class _Ends:
    """How the cells of a run end, as the listener is told; with too many failures no others start.

    of: the last event of each cell that ended in this run, by the name of its folder.
    """

    def __init__(self, listen: Listen, max_failures: int | None) -> None:
        self.listen, self.max_failures = listen, max_failures
        self.of: dict[str, dict[str, Any]] = {}
        self.failures = 0

    @property
    def may_start(self) -> bool:
        return self.max_failures is None or self.failures < self.max_failures

    def note(self, event: dict[str, Any]) -> None:
        if event["event"] in ("ended", "unclaimed"):
            self.of[Path(event["folder"]).name] = event
            self.failures += event["status"] in GIVEN_UP
        self.listen(event)


def _compute(
    backlog: Backlog, run_all: Callable[..., None], ends: _Ends, job: Callable[[Work, Claim], str], name: str
) -> None:
    """Have the executor of that name compute cells until none is left, or too many have failed."""

    def on_event(event: dict[str, Any]) -> bool:
        if event["event"] == "ended":
            if not backlog.is_out(event["folder"]):  # told twice
                return ends.may_start
            if not backlog.ended(event["folder"]):
                event = {**event, "status": "taken", "reason": "another run has taken it over"}
        ends.note(event)
        return ends.may_start

    while ends.may_start and backlog.wait():
        asked = backlog.asked
        run_all((job(work, claim) for work, claim in backlog.claimed()), on_event)
        if backlog.asked == asked:
            raise UserError(
                f"--executor {name}: it returned without asking for a cell, though {len(backlog.left)} "
                "of them are to be computed; an executor takes its jobs from the iterator that it is called with"
            )


def _last(work: Work, place: Path, end: dict[str, Any] | None) -> dict[str, Any]:
    """The last manifest of a cell; where its end could not be written down, that end is told all the same."""
    manifest = read_manifest(place) or {**work.manifest(), "status": "pending"}
    if end and end["status"] in GIVEN_UP and manifest["status"] not in ENDED:
        return {**manifest, "status": end["status"], "reason": end["reason"]}
    return manifest


def _prepare_data(missing: list[Work], facts: Assets) -> None:
    """Find what is wrong with data before the first cell starts, and leave workers a cache to read from."""
    for work in missing:
        try:
            facts.prepare(work.config)
            facts.totals(work.id, work.config)  # builds the cell from shapes alone: options that cannot work end here
        except UserError:
            raise
        except Exception:  # a fault of the plugin's: its cells fail with a traceback, and the others run
            continue


def _is_missing(found: str, options: Options) -> bool:
    if found in KEPT:
        return options.force
    return found not in GIVEN_UP or options.retry_failed or options.force


def _jobs(
    suite: suites.Suite, missing: list[Work], folder: Path, registry: Registry, options: Options
) -> Callable[[Work, Claim], str]:
    """What tells a worker, as JSON, which cell it is to compute and how; a function of the work and its claim."""
    git = machine.git_revision(Path(suite.path).resolve().parent) if missing else None
    shared = {
        "plugins": [str(file) for file in registry.files.values()],
        "device": options.device,
        "processes": max(1, options.workers() // max(1, len(missing))),
        "checkpoint_every": options.checkpoint_every,
        "fresh": options.force,
        "gpu_fraction": options.gpu_fraction,
    }

    def job(work: Work, claim: Claim) -> str:
        own = {"folder": str(work.folder_in(folder).resolve()), "manifest": {**work.manifest(), "git": git}}
        return json.dumps({**own, "claim": claim, **shared})

    return job
