"""Results of a suite: the tables of all its finished cells, and each entry of its index with its cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, DAMAGED, PENDING
from fedbench.results.costs import WAITED, Spending, spending, totals
from fedbench.results.files import ALWAYS, checked_table, empty_table, has_table
from fedbench.results.index import Entry
from fedbench.results.packed_tables import CELL, PackedTables, packed_schema, spans, suite_folder_of, without
from fedbench.results.scores import Tested, average, by_cell, collapse, constant_rounds

if TYPE_CHECKING:
    import pandas
    import pyarrow

COMPARED = ("eval", "rounds", "exchange", "server", "clock", "answers")  # the tables that a leaderboard is made of


class SuiteTables:
    """The finished cells of one suite.

    Args:
        folder: of the suite.
        packed: the tables of those that a run has packed.
        loose: by id, the folder and the manifest of those that are not packed.

    Attributes:
        faults: by id of a cell that is not packed, why its tables cannot be used; of those that were read.
    """

    def __init__(self, folder: Path, packed: PackedTables, loose: Mapping[str, tuple[Path, Mapping[str, Any]]]) -> None:
        self.folder, self.packed, self.loose = folder, packed, dict(loose)
        self.faults: dict[str, str] = {}
        self._own: dict[tuple[str, str], pyarrow.Table] = {}
        self._tested: dict[tuple[str, str], dict[str, Tested]] = {}
        self._paid: dict[str, dict[str, Spending]] = {}

    def check(self, kinds: Iterable[str], ids: Iterable[str]) -> None:
        """Read these tables. What is wrong with those of cells that are not packed is in `faults`, what is wrong with
        packed ones in `packed.damaged`."""
        kinds = tuple(kinds)
        self.packed.check(kinds)
        for id in ids:
            if id in self.loose and id not in self.faults:
                folder, manifest = self.loose[id]
                for kind in kinds:
                    if has_table(kind, folder, manifest) or f"{kind}.parquet" in ALWAYS:
                        self._read(kind, id)

    def fault(self, id: str, manifest: Mapping[str, Any]) -> str:
        """Why a cell cannot be shown, as far as it was read: its scores are lost, or it lies in a folder and any of its
        tables is not as it was written; "" where it can."""
        return self.faults.get(id, "") if id in self.loose else self.packed.lost(manifest).get("eval", "")

    def _read(self, kind: str, id: str) -> pyarrow.Table | None:
        """A table of a cell that is not packed; None where it cannot be used."""
        if (kind, id) not in self._own and id not in self.faults:
            folder, manifest = self.loose[id]
            try:
                there = has_table(kind, folder, manifest) or f"{kind}.parquet" in ALWAYS
                self._own[kind, id] = checked_table(kind, folder, manifest) if there else empty_table(kind)
            except UserError as error:
                self.faults[id] = str(error)
        return self._own.get((kind, id))

    def table(self, kind: str, id: str) -> pyarrow.Table:
        """The table of one cell; empty where it has none. Raises: UserError where it is not as it was written."""
        found = self._read(kind, id) if id in self.loose else self.packed.rows(kind, id)
        self._refuse_faulty(id)
        return empty_table(kind) if found is None else found

    def whole(self, kind: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """The rows of all cells, without those that have faults, cell by cell, after a column `cell` of their ids.

        A packed table that is damaged has no rows. Texts are dictionaries. Raises: UserError for one that is found to
        be damaged only now, where `check` was not asked before.

        Args:
            kind: one of `columns.COLUMNS`.
            columns: those that are wanted; None for all.
        """
        import pyarrow as pa

        names = list(COLUMNS[kind] if columns is None else columns)
        own = {id: table for id in self.loose if (table := self._read(kind, id)) is not None and len(table)}
        parts = [_encoded(_with_id(table.select(names), id)) for id, table in own.items()]
        if kind in self.packed.files and kind not in self.packed.damaged:
            packed = self.packed.read(kind, names)
            if not spans(packed).keys().isdisjoint(self.loose):
                packed = without(packed, self.loose)
            parts.insert(0, _encoded(packed))
        if not parts:
            return _encoded(pa.Table.from_batches([], packed_schema(kind)).select([CELL, *names]))
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    def frame(self, kind: str, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """The same as a frame, whose first column is `id`; texts are categories, and what is missing is NaN."""
        found: pandas.DataFrame = self.whole(kind, columns).to_pandas(use_threads=False)
        return found.rename(columns={CELL: "id"})

    @cached_property
    def _eval(self) -> pandas.DataFrame:
        return self.frame("eval", ("round", "split", "domain", "client", "metric", "value"))

    @cached_property
    def _measured(self) -> dict[str, list[tuple[str, str]]]:
        import pandas

        found: dict[str, list[tuple[str, str]]] = {}
        columns = [self._eval[name].cat for name in ("id", "metric", "split")]
        metrics, splits = (len(column.categories) for column in columns[1:])
        codes = [column.codes.to_numpy("int64") for column in columns]
        ids, metric_names, split_names = (column.categories.tolist() for column in columns)
        for code in pandas.unique((codes[0] * metrics + codes[1]) * splits + codes[2]).tolist():
            rest, split = divmod(code, splits)
            id, metric = divmod(rest, metrics)
            found.setdefault(ids[id], []).append((metric_names[metric], split_names[split]))
        return found

    def measured(self, id: str) -> list[tuple[str, str]]:
        """What was measured of one cell, on which split, in the order of its table. Raises: UserError."""
        found = self._measured
        self._refuse_faulty(id)
        return found.get(id, [])

    def scores(self, id: str, metric: str, split: str) -> Tested:
        """The scores of one cell. Raises: UserError where its tables are not as they were written."""
        if (metric, split) not in self._tested:
            rows = self._eval
            self._tested[metric, split] = by_cell(rows[(rows["metric"] == metric) & (rows["split"] == split)])
        self._refuse_faulty(id)
        return self._tested[metric, split].get(id, {})

    @cached_property
    def _constant(self) -> dict[str, pandas.DataFrame]:
        """By id, the rows of answers.parquet that tell of a constant prediction, of cells that have some."""
        answers = self.frame("answers", ("round", "split", "output", "top_share"))
        few = answers[answers["top_share"] == 1.0]
        return {str(id): own for id, own in few.groupby("id", observed=True)}

    def constant(self, id: str, split: str, metric: str) -> set[int]:
        """After which rounds one cell's model said the same of every example of a split, see `constant_rounds`."""
        rows = self._constant.get(id)
        return set() if rows is None else constant_rounds(rows, split, metric)

    def _refuse_faulty(self, id: str) -> None:
        if id in self.faults:
            raise UserError(self.faults[id])

    @cached_property
    def _totals(self) -> dict[str, dict[str, Any]]:
        return totals(self.whole)

    def totals(self, id: str) -> dict[str, Any]:
        """As `costs.totals`; `rows` and `last` alone where no client ever took part. Raises: UserError."""
        found = self._totals
        self._refuse_faulty(id)
        return found.get(id, {"rows": 0, "last": 1})

    def paid(self, id: str, what: str) -> Spending | None:
        """The running totals of one cell, of one of PAID; None where they are not known, for want of devices, of their
        watts, or of the table. Raises: UserError."""
        kind = "clock" if what == WAITED else "rounds"
        if id not in self.loose and not self.packed.damaged.keys().isdisjoint({kind, "rounds"}):
            return None
        if what not in self._paid:
            self._paid[what] = spending(self.whole, what)
        self._refuse_faulty(id)
        found = self._paid[what].get(id)
        return Spending([], []) if found is None and not self.totals(id)["rows"] else found


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
        """How a finished cell collapsed on a split, see `fedbench.results.scores.collapse`; None where it did not."""
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


def _with_id(table: pyarrow.Table, id: str) -> pyarrow.Table:
    import pyarrow as pa

    return table.add_column(0, CELL, pa.repeat(pa.scalar(id, pa.string()), len(table)))


def _encoded(table: pyarrow.Table) -> pyarrow.Table:
    """With texts as dictionaries, and with the fields of packed tables, which are joined with those of others."""
    from pyarrow import field, types

    for position, one in enumerate(table.schema):
        if types.is_string(one.type):
            texts = table[one.name].dictionary_encode()
            table = table.set_column(position, field(one.name, texts.type, nullable=False), texts)
    return table.replace_schema_metadata(None)
