"""The progress of a run: what is at work, how its cells end, and what it leaves behind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedbench.results.columns import ENDED, GIVEN_UP, TAKEN
from fedbench.results.identity import id_in
from fedbench.results.manifest import read_manifest

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
    """A cell at work. score: the last test score of the metric, a mean over domains · images: trained on since
    `began`, by all clients · rate: images a second, None before the first round."""

    began: float
    metric: str = ""
    score: float | None = None
    images: int = 0
    rate: float | None = None

    def advance(self, event: Mapping[str, Any], now: float) -> None:
        """A round is done."""
        self.images += event.get("images", 0)
        if "score" in event:
            self.metric, self.score = event["metric"], event["score"]
        self.rate = _rate(self.images, now - self.began)


class RunProgress:
    """Scores and speeds of a run, from its events. A cell that resumes from its checkpoint is measured from there on.

    cells: those at work, by their folders.
    """

    def __init__(self) -> None:
        self.cells: dict[str, RunningCell] = {}
        self.images = 0
        self.began = time.monotonic()

    def note(self, event: Mapping[str, Any]) -> None:
        """Take an event of the run into account."""
        folder, now = event.get("folder", ""), time.monotonic()
        if event["event"] == "started":
            self.cells[folder] = RunningCell(now)
        elif event["event"] == "round" and folder in self.cells:
            self.cells[folder].advance(event, now)
            self.images += event.get("images", 0)
        elif event["event"] in ("ended", "elsewhere"):
            self.cells.pop(folder, None)

    @property
    def rate(self) -> float | None:
        """Images a second of all cells since the run began."""
        return _rate(self.images, time.monotonic() - self.began)


def _rate(images: int, seconds: float) -> float | None:
    return images / seconds if images and seconds > 0 else None
