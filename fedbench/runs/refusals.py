"""What makes cells fail for certain, told of all of them at once before any is computed."""

from __future__ import annotations

from fedbench.errors import UserError
from fedbench.runs.plan import Cell
from fedbench.suite import Suite
from fedbench.suite.problems import Problems


class Refusals:
    """Why cells of a suite are refused: each reason once, with the place in the suite of what is to blame."""

    def __init__(self, suite: Suite) -> None:
        self.suite, self.problems = suite, Problems()

    def add(self, cell: Cell, error: UserError) -> None:
        """Note why a cell cannot be built, and go on."""
        self.problems.add(self.suite.place(cell.points[0], error.option), str(error))

    def raise_any(self) -> None:
        """Raises UserError with the reasons, in the order of the suite."""
        self.problems.raise_any()
