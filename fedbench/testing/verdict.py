"""What is said of a component that was checked."""

from __future__ import annotations

from dataclasses import dataclass

OK, SKIPPED, BROKEN = "ok", "skipped", "BROKEN"


class Untried(Exception):
    """A component that cannot be tried here, and why."""


@dataclass(frozen=True)
class Verdict:
    """verdict: OK, SKIPPED or BROKEN · what: it is said of, as in `allocation strided` · why: in a sentence, unless it
    is OK."""

    verdict: str
    what: str
    why: str = ""
