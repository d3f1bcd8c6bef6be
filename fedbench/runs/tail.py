"""The last cells of a run, the longest first, so that no worker is long at one when the others have none left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedbench.runs.plan import Cell
from fedbench.runs.turns import Totals, work_of

FOR_EACH = 2  # worker; more would only take the suite's order away


def longest_last_ones_first(cells: Sequence[Cell], totals: Mapping[str, Totals], workers: int) -> list[Cell]:
    """The cells in their order, but the last two for each of several workers by what they take; one of which that is
    not known stands as if it took nothing.

    totals: by id, what cells will cost (`Ledger.totals`).
    """
    count = max(0, len(cells) - FOR_EACH * workers) if workers > 1 else len(cells)
    return [*cells[:count], *sorted(cells[count:], key=lambda cell: -work_of(totals.get(cell.id, {})))]
