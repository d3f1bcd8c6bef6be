"""How the cells of a run end, one by one as they do, and what the run leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedbench.results.status import ENDED, GIVEN_UP

Listen = Callable[[dict[str, Any]], None]


class Ends:
    """How the cells of a run end, as the listener is told; with too many failures no others start.

    of: the last event of each cell that ended in this run, by the name of its folder · elsewhere: how many cells other
    runs computed meanwhile · twins: the folders of those that were written down from one that is
    equal.
    """

    def __init__(self, listen: Listen, max_failures: int | None) -> None:
        self.listen, self.max_failures = listen, max_failures
        self.of: dict[str, dict[str, Any]] = {}
        self.failures = self.elsewhere = 0
        self.twins = set[str]()

    @property
    def may_start(self) -> bool:
        return self.max_failures is None or self.failures < self.max_failures

    def note(self, event: dict[str, Any]) -> None:
        if event["event"] in ("ended", "unclaimed"):
            self.of[Path(event["folder"]).name] = event
            self.failures += event["status"] in GIVEN_UP
        self.elsewhere += event["event"] == "elsewhere"
        if event["event"] == "twin":
            self.twins.add(Path(event["folder"]).name)
        self.listen(event)


@dataclass
class Outcome:
    """What a run left behind: the suite's folder, and every cell's last manifest by folder name.

    asked: the cells that were to be computed · elsewhere: how many of them other runs computed meanwhile · twins:
    those that were written down from one that is equal in all that matters · gave_up: `max_failures` was reached ·
    undecided: what of a tuning has no winner, because no candidate has a score.
    """

    suite: str
    folder: Path
    manifests: dict[str, dict[str, Any]]
    asked: frozenset[str]
    seconds: float
    elsewhere: int = 0
    gave_up: bool = False
    titles: dict[str, str] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    candidates: frozenset[str] = frozenset()
    twins: frozenset[str] = frozenset()

    @property
    def ran(self) -> int:
        """How many cells were to be computed and fell to this run."""
        return len(self.asked - self.twins) - self.elsewhere

    @property
    def counts(self) -> Counter[str]:
        return Counter(manifest["status"] for manifest in self.manifests.values())

    @property
    def left(self) -> int:
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

    def after(self, earlier: Outcome) -> Outcome:
        """This outcome with that of an earlier stage of the same run."""
        return replace(
            self,
            manifests={**earlier.manifests, **self.manifests},
            asked=earlier.asked | self.asked,
            seconds=earlier.seconds + self.seconds,
            elsewhere=earlier.elsewhere + self.elsewhere,
            twins=earlier.twins | self.twins,
            titles={**earlier.titles, **self.titles},
            candidates=earlier.candidates | self.candidates,
        )
