"""A result: one entry of an index with its cell, whose tables are read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.errors import UserError
from fedbench.results.digest import Digest, digest_of
from fedbench.results.files import ALWAYS, UNTOLD, fault
from fedbench.results.identity import id_in
from fedbench.results.index import Entry
from fedbench.results.status import DAMAGED, PENDING
from fedbench.results.store import store_of, suite_folder_of
from fedbench.results.tables import arrow_schema, read_table

if TYPE_CHECKING:
    import pyarrow

COMPARED = ("eval", "rounds", "exchange", "server", "clock")  # the tables that a leaderboard is made of


@dataclass(frozen=True)
class Result:
    """One entry with its cell: the manifest at once, the tables when they are asked for.

    manifest is empty and status "pending" where the cell has not been started. fault: what is not as it was written,
    where the cell is left out for it; its status is then "damaged". known: what leaderboards need of its tables where
    that was kept; then none of COMPARED is read.
    """

    suite: str
    entry: Entry
    folder: Path
    manifest: Mapping[str, Any]
    fault: str = ""
    known: Digest | None = field(default=None, repr=False, compare=False)

    @property
    def suite_folder(self) -> Path:
        """The folder that the index with its entry lies in."""
        return suite_folder_of(self.folder)

    @property
    def status(self) -> str:
        return DAMAGED if self.fault else self.manifest.get("status", PENDING)

    def examined(self, kinds: Iterable[str]) -> Result:
        """This result, its tables of these kinds read; or where one is not as it was written, one that says so."""
        try:
            for kind in kinds if self.status == "finished" else ():
                if self.known and kind in COMPARED:
                    continue
                if self._has(kind) or f"{kind}.parquet" in ALWAYS:
                    getattr(self, kind)
        except UserError as error:
            return replace(self, fault=first_line(error))
        return self

    @property
    def num_rounds(self) -> int:
        """T, as configured; where a stranger's configuration says less, the last round that is recorded."""
        configured: int = self.manifest.get("config", {}).get("train", {}).get("rounds", 0)
        return max(configured, self.digest.totals["last"], 1)

    @property
    def metrics(self) -> list[str]:
        """What was measured, by name."""
        return self.digest.scores.metrics

    @cached_property
    def digest(self) -> Digest:
        """What leaderboards need of the tables; of a finished cell."""
        return self.known or digest_of(self)

    @cached_property
    def eval(self) -> pyarrow.Table:
        return self._table("eval")

    @cached_property
    def rounds(self) -> pyarrow.Table:
        return self._table("rounds")

    @cached_property
    def layers(self) -> pyarrow.Table:
        """Raises: UserError where an older fedbench, which did not record layers, computed the cell."""
        if self.status == "finished" and not self._has("layers"):
            path = self.folder / "layers.parquet"
            raise UserError(
                f"{path}: there is none, because the cell was computed before fedbench recorded its layers.\n"
                "`fedbench run SUITE.yaml --force` computes the suite's cells anew."
            )
        return self._table("layers")

    def _table(self, kind: str) -> pyarrow.Table:
        """Raises: UserError where it is not as it was written."""
        return checked_table(kind, self.folder, self.manifest)

    @cached_property
    def uploads(self) -> pyarrow.Table:
        """Without rows where no upload was corrupted or refused, and the cell has no such file."""
        return self._table_or_none("uploads")

    @cached_property
    def exchange(self) -> pyarrow.Table:
        """Without rows where an older fedbench, which did not record it, computed the cell."""
        return self._table_or_none("exchange")

    @cached_property
    def server(self) -> pyarrow.Table:
        """Without rows where the server computes for no client, and the cell has no such file."""
        return self._table_or_none("server")

    @cached_property
    def clock(self) -> pyarrow.Table:
        """Without rows where clients have no devices, and the cell has no such file."""
        return self._table_or_none("clock")

    @cached_property
    def right(self) -> pyarrow.Table:
        """Without rows where an older fedbench, which did not record it, computed the cell."""
        return self._table_or_none("right")

    @cached_property
    def sizes(self) -> pyarrow.Table:
        """Without rows where the suite does not ask for `evaluation: {sizes: true}`."""
        return self._table_or_none("sizes")

    @cached_property
    def deployed(self) -> pyarrow.Table:
        """As `sizes`."""
        return self._table_or_none("deployed")

    def _table_or_none(self, kind: str) -> pyarrow.Table:
        return self._table(kind) if self._has(kind) else _empty(kind)

    def _has(self, kind: str) -> bool:
        """Whether a table is there, or should be."""
        return has_table(kind, self.folder, self.manifest)


def has_table(kind: str, folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a cell's table is there, or should be by its manifest."""
    name = f"{kind}.parquet"
    if "tables" in manifest:  # it is packed
        return kind in manifest["tables"]
    return name in manifest.get("files", ()) or (folder / name).is_file()


def checked_table(kind: str, folder: Path, manifest: Mapping[str, Any]) -> pyarrow.Table:
    """Raises: UserError where it is not as it was written; a changed bit could pass for another number."""
    if "tables" in manifest:
        table = store_of(suite_folder_of(folder)).rows(kind, manifest["id"])
        return _empty(kind) if table is None else table
    path, files = folder / f"{kind}.parquet", manifest.get("files")
    wrong = fault(path, files[path.name], None) if files and path.name in files else UNTOLD if files else None
    if wrong:
        raise UserError(f"{path}: {wrong}.\nRun the suite again: only that cell is computed anew.")
    return read_table(kind, path)


def read_rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of one table of a cell, or of its checkpoint, whether it is packed or not. Raises: UserError."""
    if not (path := Path(folder) / f"{kind}.parquet").is_file():
        packed = store_of(suite_folder_of(folder)).rows(kind, id_in(Path(folder).name))
        if packed is not None:
            return packed.to_pylist()
    return read_table(kind, path).to_pylist()


def first_line(error: UserError) -> str:
    """What is wrong, without how to mend it."""
    return str(error).partition("\n")[0].removesuffix(".")


def _empty(kind: str) -> pyarrow.Table:
    """A table without rows, made of no batches: Arrow's arrays, empty ones too, import pandas."""
    from pyarrow import Table

    return Table.from_batches([], schema=arrow_schema(kind))
