"""What makes cells fail for certain, told of all of them at once before any is computed, unless others can run."""

from __future__ import annotations

from fedbench.errors import UserError
from fedbench.runs.plan import Cell
from fedbench.suite import Suite
from fedbench.suite.problems import Problems


class Refusals:
    """Why cells of a suite are refused: each reason once, with the place in the suite of what is to blame.

    A cell whose plugin refuses it is its own failure, and the others run; the suite is refused where an option that it
    sets is to blame, or where no cell is left.
    """

    def __init__(self, suite: Suite) -> None:
        self.suite, self.problems = suite, Problems()
        self.refused, self.by_option = 0, False

    def add(self, cell: Cell, error: UserError) -> None:
        """Note why a cell cannot be built, and go on."""
        self.refused += 1
        self.by_option |= bool(error.option)
        self.problems.add(self.suite.place(cell.points[0], error.option), str(error))

    def raise_any(self, of: int) -> None:
        """Raises UserError with the reasons, in the order of the suite, unless some of so many cells can run and no
        option is to blame."""
        if self.by_option or self.refused == of:
            self.problems.raise_any()
