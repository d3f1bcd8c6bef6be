"""The order of a cell that ends at once."""

from __future__ import annotations

from pathlib import Path

from factories import config

from fedbench.results.identity import identity
from fedbench.runner.cells import Cell
from fedbench.simulation.cell_job import CellJob


def order(folder: Path) -> CellJob:
    """A cell that cannot run, for nobody has its backbone: it ends at once, with a whole manifest."""
    own = config("fedra", backbone={"name": "nobodys"})
    return CellJob(folder, {**Cell(identity(own, {}, {}), own, {}, {}, []).manifest(), "git": None}, "cpu", [])
