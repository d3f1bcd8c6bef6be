"""What makes cells fail for certain, told of all of them at once before any is computed, unless others can run."""

from __future__ import annotations

from collections.abc import Sequence

from fedbench.errors import UserError
from fedbench.runner.cells import Cell
from fedbench.suite import Suite
from fedbench.suite.node import Mark, Problems

ALSO = 3  # further places of a reason that are named


class Refusals:
    """Why cells of a suite are refused: each reason once, with the places in the suite of what is to blame.

    A cell whose plugin refuses it is its own failure, and the others run; the suite is refused where an option that it
    sets is to blame, or where no cell is left.
    """

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.places: dict[str, dict[Mark, None]] = {}  # of each reason
        self.refused, self.by_option = 0, False

    def add(self, cell: Cell, error: UserError) -> None:
        """Note why a cell cannot be built, and go on."""
        self.refused += 1
        self.by_option |= bool(error.option)
        self.places.setdefault(str(error), {})[self.suite.place(cell.points[0], error.option)] = None

    def raise_any(self, of: int) -> None:
        """Raises UserError with the reasons, in the order of the suite, unless some of so many cells can run and no
        option is to blame."""
        if not (self.by_option or self.refused == of):
            return
        problems = Problems()
        for reason, (first, *others) in self.places.items():
            problems.add(first, reason + _also(others))
        problems.raise_any()


def _also(others: Sequence[Mark]) -> str:
    if not others:
        return ""
    more = f" and {len(others) - ALSO} more" if len(others) > ALSO else ""
    return f"\n  the same at {', '.join(map(str, others[:ALSO]))}{more}"
