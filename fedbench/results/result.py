"""A result: one entry of an index with its cell, whose tables are read when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.errors import UserError
from fedbench.results.collapse import collapse
from fedbench.results.columns import DAMAGED, PENDING
from fedbench.results.costs import Spending
from fedbench.results.files import checked_table, empty_table, has_table
from fedbench.results.index import Entry
from fedbench.results.packed_tables import PackedTables, suite_folder_of
from fedbench.results.scores import Tested, average
from fedbench.results.suite_tables import SuiteTables

if TYPE_CHECKING:
    import pyarrow

COMPARED = ("eval", "rounds", "exchange", "server", "clock", "answers")  # the tables that a leaderboard is made of


@dataclass(frozen=True)
class Result:
    """One entry with its cell.

    manifest is empty and status "pending" where the cell has not been started. fault: what is not as it was written,
    where the cell is left out for it; its status is then "damaged". cells: all finished cells of its suite.
    """

    suite: str
    entry: Entry
    folder: Path
    manifest: Mapping[str, Any]
    fault: str = ""
    cells: SuiteTables | None = field(default=None, repr=False, compare=False)

    @cached_property
    def suite_folder(self) -> Path:
        """The folder that the index with its entry lies in."""
        return self.cells.folder if self.cells else suite_folder_of(self.folder)

    @property
    def status(self) -> str:
        return DAMAGED if self.fault else self.manifest.get("status", PENDING)

    @property
    def num_rounds(self) -> int:
        """T, as configured; where a third-party configuration has less, the last round that is recorded."""
        configured: int = self.manifest.get("config", {}).get("train", {}).get("rounds", 0)
        return max(configured, self._tables.totals(self.entry.cell)["last"], 1)

    def metrics(self, split: str | None = None) -> list[str]:
        """What was measured of a finished cell on a split, or on any, in its order. Raises: UserError where its tables
        are not as they were written, as all below."""
        measured = self._tables.measured(self.entry.cell)
        return list(dict.fromkeys(metric for metric, part in measured if split in (None, part)))

    def scores(self, metric: str, split: str = "test") -> Tested:
        """By evaluated round of a finished cell, the value of every (domain, client); nothing where that was not
        measured."""
        return self._tables.scores(self.entry.cell, metric, split)

    @cached_property
    def _tables(self) -> SuiteTables:
        if self.cells is not None:
            return self.cells
        return SuiteTables(
            self.suite_folder, PackedTables(self.suite_folder, {}), {self.entry.cell: (self.folder, self.manifest)}
        )

    def collapse(self, metric: str, split: str) -> str | None:
        """How a finished cell collapsed on a split, see `fedbench.results.collapse`; None where it did not."""
        averages = {t: average(found) for t, found in self.scores(metric, split).items()}
        return collapse(averages, self._tables.constant(self.entry.cell, split, metric), metric)

    @cached_property
    def totals(self) -> Mapping[str, Any]:
        """As `fedbench.results.costs.totals` of a finished cell, with `coverage`: how many clients train a layer in a
        round in the mean, None where none is trained."""
        found = self._tables.totals(self.entry.cell)
        layers = found.get("layers")
        return {**found, "coverage": found["returned"] / (self.num_rounds * layers) if layers else None}

    def paid(self, what: str) -> Spending | None:
        """One of PAID of a finished cell; None where it is not known, for want of devices or of their watts."""
        return self._tables.paid(self.entry.cell, what)

    @property
    def layers(self) -> pyarrow.Table:
        """Raises: UserError where an older fedbench, which did not record layers, computed the cell."""
        if self.status == "finished" and not has_table("layers", self.folder, self.manifest):
            path = self.folder / "layers.parquet"
            raise UserError(
                f"{path}: there is none, because the cell was computed before fedbench recorded its layers.\n"
                "`fedbench run SUITE.yaml --force` computes the suite's cells again."
            )
        return self.table("layers")

    def table(self, kind: str) -> pyarrow.Table:
        """One of `columns.COLUMNS`, without rows where the cell has none. Raises: UserError where it was changed."""
        if self.status == "finished":
            return self._tables.table(kind, self.entry.cell)
        return checked_table(kind, self.folder, self.manifest) if self._has(kind) else empty_table(kind)

    def _has(self, kind: str) -> bool:
        return has_table(kind, self.folder, self.manifest)

    @property
    def eval(self) -> pyarrow.Table:
        return self.table("eval")

    @property
    def rounds(self) -> pyarrow.Table:
        return self.table("rounds")


def first_line(error: UserError | str) -> str:
    """What is wrong, without what to do about it."""
    return str(error).partition("\n")[0].removesuffix(".")
