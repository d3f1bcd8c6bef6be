"""Whole tables of a suite: the rows of all its cells, packed or not, and what is computed of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.errors import UserError
from fedbench.results.collapse import constant_rounds
from fedbench.results.columns import COLUMNS
from fedbench.results.costs import PAID, WAITED, Spending, spending, totals
from fedbench.results.files import ALWAYS, checked_table, empty_table, has_table
from fedbench.results.scores import NAMED, Layout, Scores
from fedbench.results.store import CELL, TRIES, Store, packed_schema, spans, store_of, without
from fedbench.results.tables import filled, numbers

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

Spans = Mapping[str, tuple[int, int]]  # between which rows those of each cell lie


class SuiteTables:
    """The finished cells of one suite.

    Args:
        folder: of the suite.
        store: the packed ones.
        loose: by id, the folder and the manifest of those that are not packed.

    Attributes:
        faults: by id of a cell that is not packed, why its tables cannot be used; of those that were read.
    """

    def __init__(self, folder: Path, store: Store, loose: Mapping[str, tuple[Path, Mapping[str, Any]]]) -> None:
        self.folder, self.store, self.loose = folder, store, dict(loose)
        self.faults: dict[str, str] = {}
        self._own: dict[tuple[str, str], pyarrow.Table] = {}
        self._layouts: dict[bytes, Layout] = {}
        self._paid: dict[str, tuple[Spans, np.ndarray, np.ndarray, np.ndarray]] = {}

    def check(self, kinds: Iterable[str], ids: Iterable[str]) -> None:
        """Read these tables. What is wrong with those of cells that are not packed is in `faults`, what is wrong with
        packed ones in `store.damaged`."""
        kinds = tuple(kinds)
        for _ in range(TRIES):
            self.store.check(kinds)
            if not self.store.damaged or (now := store_of(self.store.folder)).files == self.store.files:
                break
            self.store = now
        for id in ids:
            if id in self.loose and id not in self.faults:
                folder, manifest = self.loose[id]
                for kind in kinds:
                    if has_table(kind, folder, manifest) or f"{kind}.parquet" in ALWAYS:
                        self._read(kind, id)

    def fault(self, id: str, manifest: Mapping[str, Any]) -> str:
        """Why a cell cannot be shown, as far as it was read: its scores are lost, or it lies in a folder and any of its
        tables is not as it was written; "" where it can."""
        return self.faults.get(id, "") if id in self.loose else self.store.lost(manifest).get("eval", "")

    def _read(self, kind: str, id: str) -> pyarrow.Table | None:
        """A table of a cell that is not packed; None where it cannot be used."""
        if (kind, id) not in self._own and id not in self.faults:
            folder, manifest = self.loose[id]
            try:
                there = has_table(kind, folder, manifest) or f"{kind}.parquet" in ALWAYS
                self._own[kind, id] = checked_table(kind, folder, manifest) if there else empty_table(kind)
            except UserError as error:
                if self._packed_meanwhile(id):
                    return None
                self.faults[id] = str(error)
        return self._own.get((kind, id))

    def _packed_meanwhile(self, id: str) -> bool:
        """Whether a run has packed a cell while it was read; its rows are then in the new tables."""
        now = store_of(self.store.folder)
        if now is self.store or id not in now.ids:
            return False
        self.store = now
        del self.loose[id]
        return True

    def table(self, kind: str, id: str) -> pyarrow.Table:
        """The table of one cell; empty where it has none. Raises: UserError where it is not as it was written."""
        if id in self.loose:
            own = self._read(kind, id)
            if id in self.faults:
                raise UserError(self.faults[id])
            if own is not None:
                return own
        found = self._current(lambda: self.store.rows(kind, id))
        return empty_table(kind) if found is None else found

    def whole(self, kind: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """The rows of all cells, without those that have faults, cell by cell, after a column `cell` of their ids.

        A packed table that is damaged has no rows. Texts are dictionaries. Raises: UserError for one that is found to
        be damaged only now, where `check` was not asked before.

        Args:
            kind: one of `columns.COLUMNS`.
            columns: those that are wanted; None for all.
        """
        names = list(COLUMNS[kind] if columns is None else columns)
        own = {id: table for id in [*self.loose] if (table := self._read(kind, id)) is not None and len(table)}
        return self._current(lambda: self._whole(kind, names, own))

    def _current(self, read: Any) -> Any:
        """What is read of the packed tables, where a run packs again meanwhile of the new ones."""
        for _ in range(TRIES):
            try:
                return read()
            except UserError:
                if (now := store_of(self.store.folder)) is self.store:
                    raise
                self.store = now
        return read()

    def _whole(self, kind: str, names: list[str], own: Mapping[str, pyarrow.Table]) -> pyarrow.Table:
        import pyarrow as pa

        parts = [_encoded(_with_id(table.select(names), id)) for id, table in own.items()]
        if kind in self.store.files and kind not in self.store.damaged:
            packed = self.store.read(kind, names)
            if not spans(packed).keys().isdisjoint(self.loose):
                packed = without(packed, self.loose)
            parts.insert(0, _encoded(packed))
        if not parts:
            return _encoded(pa.Table.from_batches([], packed_schema(kind)).select([CELL, *names]))
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    @cached_property
    def _eval(self) -> tuple[Spans, dict[str, np.ndarray], dict[str, list[str]]]:
        """Of the scores of all cells: the rows of each, their columns, with places of texts, and the texts."""
        whole = self.whole("eval")
        coded = {name: whole[name].combine_chunks() for name, kind in COLUMNS["eval"].items() if kind == "string"}
        columns = {n: numbers(coded[n].indices) if n in coded else filled(whole, n) for n in COLUMNS["eval"]}
        return spans(whole), columns, {name: column.dictionary.to_pylist() for name, column in coded.items()}

    def evaluation(self, id: str) -> dict[str, Any]:
        """The columns of eval.parquet of one cell: arrays of numbers, lists of texts. Raises: UserError."""
        places, columns, texts = self._eval
        rows = slice(*self._span(places, id))
        own: dict[str, Any] = {name: column[rows] for name, column in columns.items()}
        return own | {name: [named[code] for code in own[name].tolist()] for name, named in texts.items()}

    def scores(self, id: str) -> Scores:
        """The scores of one cell. Raises: UserError where its tables are not as they were written."""
        places, columns, _ = self._eval
        rows = slice(*self._span(places, id))
        key = b"".join(columns[name][rows].tobytes() for name in NAMED)
        if key not in self._layouts:  # which cells of one scenario have in common
            own = self.evaluation(id)
            named = {name: own[name] for name in NAMED}
            self._layouts[key] = Layout({n: v if isinstance(v, list) else v.tolist() for n, v in named.items()})
        return Scores(self._layouts[key], columns["value"][rows])

    @cached_property
    def _constant(self) -> dict[str, pyarrow.Table]:
        """By id, the rows of answers.parquet that tell of a constant prediction, of cells that have some."""
        import numpy as np
        import pyarrow as pa

        whole = self.whole("answers")
        bits = np.packbits(filled(whole, "top_share") == 1.0, bitorder="little")  # `pa.array` would import pandas
        few = whole.filter(pa.Array.from_buffers(pa.bool_(), len(whole), [None, pa.py_buffer(bits)]))
        return {id: few.slice(start, end - start) for id, (start, end) in spans(few).items()}

    def constant(self, id: str, split: str, metric: str) -> set[int]:
        """After which rounds one cell's model said the same of every example of a split, see `constant_rounds`."""
        rows = self._constant.get(id)
        return set() if rows is None else constant_rounds(rows, split, metric)

    def _span(self, places: Spans, id: str) -> tuple[int, int]:
        if id in self.faults:
            raise UserError(self.faults[id])
        return places.get(id, (0, 0))

    @cached_property
    def _totals(self) -> dict[str, dict[str, Any]]:
        return totals(self.whole)

    def totals(self, id: str) -> dict[str, Any]:
        """As `costs.totals`; `rows` and `last` alone where no client ever took part. Raises: UserError."""
        found = self._totals
        if id in self.faults:
            raise UserError(self.faults[id])
        return found.get(id, {"rows": 0, "last": 1})

    def paid(self, id: str, what: str) -> Spending | None:
        """The running totals of one cell, of one of PAID; None where they are not known, for want of devices, of their
        watts, or of the table. Raises: UserError."""
        kind = "clock" if what == WAITED else "rounds"
        if id not in self.loose and not self.store.damaged.keys().isdisjoint({kind, "rounds"}):
            return None
        if what not in self._paid:
            whole = self.whole(kind, ("round", *PAID[what]))
            amounts, *others = (filled(whole, name) for name in PAID[what])
            missing = numbers(whole[PAID[what][0]].combine_chunks().is_null())
            self._paid[what] = spans(whole), filled(whole, "round"), sum(others, amounts), missing
        places, rounds, amounts, missing = self._paid[what]
        start, end = self._span(places, id)
        known = end > start or not self.totals(id)["rows"] if what == WAITED else not missing[start:end].any()
        return spending(rounds[start:end], amounts[start:end]) if known else None


def _with_id(table: pyarrow.Table, id: str) -> pyarrow.Table:
    import pyarrow as pa

    return table.add_column(0, CELL, pa.repeat(pa.scalar(id, pa.string()), len(table)))


def _encoded(table: pyarrow.Table) -> pyarrow.Table:
    """With texts as dictionaries, and with the fields of packed tables, which are joined with those of others."""
    from pyarrow import field, types

    for place, one in enumerate(table.schema):
        if types.is_string(one.type):
            texts = table[one.name].dictionary_encode()
            table = table.set_column(place, field(one.name, texts.type, nullable=False), texts)
    return table.replace_schema_metadata(None)
