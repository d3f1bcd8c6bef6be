"""The progress of a run: how its cells end, and what it leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.results.columns import ENDED, GIVEN_UP, TAKEN
from fedbench.results.manifest import believed_manifest

Listen = Callable[[dict[str, Any]], None]


class EndedCells:
    """How the cells of a run end; the listener gets their events, and with too many failures no others start.

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
        return folder.name in self.candidates and bool((believed_manifest(folder) or {}).get("diverged"))


@dataclass
class RunSummary:
    """What a run left behind: the suite's folder, and every cell's last manifest by folder name.

    asked: the cells that were to be computed · computed: those of them that this run computed · elsewhere: that other
    runs computed meanwhile · behind: those that ended at an earlier round than they were to come to · failures: what
    counts for `max_failures` · gave_up: that was reached · undecided: what of a tuning has no winner, because no
    candidate has a score · unstable: what of it has none, because every candidate was vetoed.
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
    undecided: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
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

    def after(self, earlier: RunSummary) -> RunSummary:
        """This outcome with that of an earlier stage of the same run. A cell of both counts once: as computed, if it
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
            candidates=earlier.candidates | self.candidates,
        )
