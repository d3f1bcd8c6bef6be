"""The progress of a run: how its cells end, and what it leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.results.columns import ENDED, GIVEN_UP
from fedbench.results.files import believed_manifest

Listen = Callable[[dict[str, Any]], None]


class EndedCells:
    """How the cells of a run end; the listener gets their events, and with too many failures no others start.

    Attributes:
        candidates: the ids of those cells that a tuning tries, of which one that diverged is no failure.
        of: the last event of each cell that this run computed, by its id.
    """

    def __init__(self, listen: Listen, max_failures: int | None, candidates: Collection[str] = ()) -> None:
        self.listen, self.max_failures, self.candidates = listen, max_failures, frozenset(candidates)
        self.of: dict[str, dict[str, Any]] = {}
        self.failures = 0

    @property
    def may_start(self) -> bool:
        return self.max_failures is None or self.failures < self.max_failures

    def note(self, event: dict[str, Any]) -> None:
        if event["event"] == "ended":
            id = Path(event["folder"]).name
            if id in self.of:  # an executor may tell it twice
                return
            self.of[id] = event
            self.failures += event["status"] in GIVEN_UP and not self._answers(Path(event["folder"]))
        self.listen(event)

    def _answers(self, folder: Path) -> bool:
        """Whether a cell that was given up is a candidate that diverged: it does not win, which is an answer."""
        return folder.name in self.candidates and bool((believed_manifest(folder) or {}).get("diverged"))


@dataclass
class RunSummary:
    """What a run left behind: the suite's folder, and every cell's last manifest by its id.

    Attributes:
        asked: the cells that were to be computed.
        computed: those of them that were.
        behind: those that ended at an earlier round than they were to come to.
        failures: what counts for `max_failures`.
        gave_up: that was reached.
        undecided: what of a tuning has no winner, because no candidate has a score.
        unstable: what of it has none, because every candidate was vetoed.
    """

    suite: str
    folder: Path
    manifests: dict[str, dict[str, Any]]
    asked: frozenset[str]
    seconds: float
    computed: frozenset[str] = frozenset()
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
        unended = sum(manifest["status"] not in ENDED for manifest in self.manifests.values())
        return len(self.behind) + unended

    @property
    def failed(self) -> dict[str, dict[str, Any]]:
        """What has no result. A candidate of a tuning that diverged has one: it does not win."""
        given_up = {name: m for name, m in self.manifests.items() if m["status"] in GIVEN_UP}
        return {name: m for name, m in given_up.items() if not (m.get("diverged") and name in self.candidates)}

    def after(self, earlier: RunSummary) -> RunSummary:
        """This outcome with that of an earlier stage of the same run. A cell of both counts once."""
        return replace(
            self,
            manifests={**earlier.manifests, **self.manifests},
            asked=earlier.asked | self.asked,
            seconds=earlier.seconds + self.seconds,
            computed=earlier.computed | self.computed,
            behind=(earlier.behind - self.manifests.keys()) | self.behind,
            failures=earlier.failures + self.failures,
            candidates=earlier.candidates | self.candidates,
        )
