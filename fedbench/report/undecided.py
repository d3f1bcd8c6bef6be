"""What is said of methods that have candidates and no result, and where there is no cell at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.results import Found
from fedbench.results.status import ENDED
from fedbench.words import shortened

MOST = 3  # methods that are named


def undecided(found: Found, paths: Sequence[str | Path]) -> str:
    """A sentence; "" where everything that is found reports."""
    if not (found.results or found.undecided):
        return f"{', '.join(map(str, paths))}: no cells; whatever ran here had none to compute."
    if not found.undecided:
        return ""
    cells = {r.folder: r.status in ENDED for r in found.undecided}  # equal candidates have one
    places = ((r.suite, r.entry.scenario, r.entry.variant, r.entry.method) for r in found.undecided)
    names = dict.fromkeys(" · ".join(filter(None, place)) for place in places)
    tried = f"{sum(cells.values())} of {len(cells)} tried, of {shortened(list(names), MOST)}"
    return f"Only candidates so far, {tried}; `fedbench compare --tuning` shows them."
