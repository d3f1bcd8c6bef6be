"""What stands in the place of a number that a cell does not have: a word in the table, a few more below it."""

from __future__ import annotations

from typing import NamedTuple

from fedbench.results.status import DAMAGED, HALVED, INTERRUPTED, PENDING

DASH = "–"


class Absence(NamedTuple):
    """How a status is called in a table, and in the sentence below."""

    short: str
    long: str


# In the order in which several seeds are called: by the first that one of them has.
ABSENCES = {
    "finished": Absence("", ""),
    DAMAGED: Absence("damaged", "left out, because it is not as it was written"),
    "failed": Absence("failed", "failed"),
    "timeout": Absence("timeout", "out of time"),
    HALVED: Absence("halved", "ended early, among the worse half of its candidates"),
    INTERRUPTED: Absence("unfinished", "interrupted"),
    "running": Absence("unfinished", "not finished (running or interrupted)"),
    PENDING: Absence("pending", "not started"),
    "not_applicable": Absence(DASH, "not applicable"),
}
