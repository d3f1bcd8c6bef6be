"""How the cells of a run end, one by one as they do, and what the run leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.results.status import ENDED, GIVEN_UP

Listen = Callable[[dict[str, Any]], None]


class Ends:
    """How the cells of a run end, as the listener is told; with too many failures no others start.

    of: the last event of each cell that ended in this run, by the name of its folder · elsewhere: how many cells other
    runs computed meanwhile.
    """

    def __init__(self, listen: Listen, max_failures: int | None) -> None:
        self.listen, self.max_failures = listen, max_failures
        self.of: dict[str, dict[str, Any]] = {}
        self.failures = self.elsewhere = 0

    @property
    def may_start(self) -> bool:
        return self.max_failures is None or self.failures < self.max_failures

    def note(self, event: dict[str, Any]) -> None:
        if event["event"] in ("ended", "unclaimed"):
            self.of[Path(event["folder"]).name] = event
            self.failures += event["status"] in GIVEN_UP
        self.elsewhere += event["event"] == "elsewhere"
        self.listen(event)


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
