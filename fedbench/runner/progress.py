"""The progress of a run: what is at work, how its cells end, and what it leaves behind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedbench.results.identity import id_in
from fedbench.results.manifest import read_manifest
from fedbench.results.status import ENDED, GIVEN_UP, TAKEN
from fedbench.runner.cells import Cell

Listen = Callable[[dict[str, Any]], None]


class EndedCells:
    """How the cells of a run end, as the listener is told; with too many failures no others start.

    candidates: the ids of those cells that a tuning tries, of which one that diverged is no failure · of: the last
    event of each cell that ended in this run, by the name of its folder · elsewhere: the folders of those that other
    runs computed meanwhile.
    """

    def __init__(self, listen: Listen, max_failures: int | None, candidates: Collection[str] = ()) -> None:
        self.listen, self.max_failures, self.candidates = listen, max_failures, candidates
        self.of: dict[str, dict[str, Any]] = {}
        self.failures = 0
        self.elsewhere = set[str]()

    @property
    def may_start(self) -> bool:
        return self.max_failures is None or self.failures < self.max_failures

    @property
    def ran(self) -> frozenset[str]:
        """The folders of the cells that this run computed, however they ended."""
        return frozenset(name for name, end in self.of.items() if end["status"] != TAKEN)

    def note(self, event: dict[str, Any]) -> None:
        if event["event"] == "ended":
            self.of[Path(event["folder"]).name] = event
            self.failures += event["status"] in GIVEN_UP and not self._answers(Path(event["folder"]))
        if event["event"] == "elsewhere":
            self.elsewhere.add(Path(event["folder"]).name)
        self.listen(event)

    def _answers(self, folder: Path) -> bool:
        """Whether a cell that was given up is a candidate that diverged: it does not win, which is an answer."""
        return id_in(folder.name) in self.candidates and bool((read_manifest(folder) or {}).get("diverged"))


@dataclass
class RunSummary:
    """What a run left behind: the suite's folder, and every cell's last manifest by folder name.

    asked: the cells that were to be computed · computed: those of them that this run computed · elsewhere: that other
    runs computed meanwhile · behind: those that ended at an earlier round than they were to come to · failures: what
    counts for `max_failures` · gave_up: that was reached · undecided: what of a tuning has no winner, because no
    candidate has a score.
    """

    suite: str
    folder: Path
    manifests: dict[str, dict[str, Any]]
    asked: frozenset[str]
    seconds: float
    computed: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()
    failures: int = 0
    gave_up: bool = False
    titles: dict[str, str] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    candidates: frozenset[str] = frozenset()

    @property
    def ran(self) -> int:
        """How many cells this run computed."""
        return len(self.computed)

    @property
    def kept(self) -> int:
        """How many cells were not to be computed."""
        return len(self.manifests.keys() - self.asked)

    @property
    def counts(self) -> Counter[str]:
        return Counter(manifest["status"] for manifest in self.manifests.values())

    @property
    def left(self) -> int:
        """How many cells have not ended, or not come as far as they were to."""
        return len(self.behind) + self.unended

    @property
    def unended(self) -> int:
        """How many cells have not ended."""
        return sum(manifest["status"] not in ENDED for manifest in self.manifests.values())

    @property
    def failed(self) -> dict[str, dict[str, Any]]:
        """What has no result. A candidate of a tuning that diverged has one: it does not win."""
        given_up = {name: m for name, m in self.manifests.items() if m["status"] in GIVEN_UP}
        return {name: m for name, m in given_up.items() if not (m.get("diverged") and name in self.candidates)}

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """What was left out of the data of these cells: `data` by name, so many `images` `of` so many."""
        found = {
            (m["fingerprints"]["data"], *m["left_out"].values()): {"data": m["config"]["data"]["name"], **m["left_out"]}
            for m in self.manifests.values()
            if m.get("left_out")
        }
        return list(found.values())

    def after(self, earlier: RunSummary) -> RunSummary:
        """This outcome with that of an earlier stage of the same run. A cell of both is told once: as computed, if it
        was so in one of them, else as computed elsewhere."""
        computed = earlier.computed | self.computed
        elsewhere = (earlier.elsewhere | self.elsewhere) - computed
        return replace(
            self,
            manifests={**earlier.manifests, **self.manifests},
            asked=earlier.asked | self.asked,
            seconds=earlier.seconds + self.seconds,
            computed=computed,
            elsewhere=elsewhere,
            behind=(earlier.behind - self.manifests.keys()) | self.behind,
            failures=earlier.failures + self.failures,
            titles={**earlier.titles, **self.titles},
            candidates=earlier.candidates | self.candidates,
        )


@dataclass
class RunningCell:
    """A cell at work. round: of how many it is done · score: the last test score of the metric, a mean over domains ·
    images: trained on since `began`, by all clients · rate: images a second · left: seconds, None where nobody knows.
    """

    title: str
    rounds: int
    began: float
    round: int = 0
    metric: str = ""
    score: float | None = None
    images: int = 0
    rate: float | None = None
    left: float | None = None
    first: int = 0  # the round that it began with, which is none of its doing

    def advance(self, event: Mapping[str, Any], now: float) -> None:
        """A round is done."""
        self.round = event["round"]
        self.images += event.get("images", 0)
        if "score" in event:
            self.metric, self.score = event["metric"], event["score"]
        took, done = now - self.began, self.round - self.first
        if took > 0 and done > 0:
            self.rate = self.images / took if self.images else None
            self.left = took / done * (self.rounds - self.round)


class RunProgress:
    """Of a run: `note` is told its events. A cell that goes on from its checkpoint is measured from there on."""

    def __init__(self, cells: Mapping[str, tuple[str, int]], kept: int = 0) -> None:
        """cells: those to compute, title and rounds by the end of the folder's name; kept: how many are done."""
        self.cells, self.kept = cells, kept
        self.at: dict[str, RunningCell] = {}
        self.ended: dict[str, int] = {}  # by status
        self.before = 0  # rounds of cells that have ended
        self.images = 0
        self.began = time.monotonic()

    def note(self, event: Mapping[str, Any]) -> None:
        folder, now = event.get("folder", ""), time.monotonic()
        if event["event"] == "started":
            title, rounds = self.cells[id_in(Path(folder).name)]
            self.at[folder] = RunningCell(title, rounds, now)
        elif event["event"] == "resumed" and folder in self.at:
            self.at[folder].round = self.at[folder].first = event["round"]
        elif event["event"] == "round" and folder in self.at:
            self.at[folder].advance(event, now)
            self.images += event.get("images", 0)
        elif event["event"] in ("ended", "elsewhere"):
            one = self.at.pop(folder, None)
            if event["status"] != "taken":
                self.ended[event["status"]] = self.ended.get(event["status"], 0) + 1
                self.before += one.rounds if one else self.cells[id_in(Path(folder).name)][1]

    @property
    def rounds(self) -> int:
        """Of all cells that are computed."""
        return sum(rounds for _, rounds in self.cells.values())

    @property
    def done(self) -> int:
        """Rounds done; those of ended cells count whole, however they ended."""
        return self.before + sum(one.round for one in self.at.values())

    @property
    def rate(self) -> float | None:
        """Images a second of all cells since the run began."""
        took = time.monotonic() - self.began
        return self.images / took if self.images and took > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds, as if what is left took as long a round as what was computed since the run began."""
        fresh = self.done - sum(one.first for one in self.at.values())
        return (time.monotonic() - self.began) / fresh * (self.rounds - self.done) if fresh > 0 else None


def progress_of(missing: Sequence[Cell], kept: int) -> RunProgress:
    """The pace of a run that is to compute these cells."""
    return RunProgress({cell.id: (cell.title, cell.rounds) for cell in missing}, kept)
