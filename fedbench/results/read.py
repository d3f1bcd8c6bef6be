"""Results as tables: every name with its cell, and the rows of all cells, as pandas frames."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.results.columns import COLUMNS
from fedbench.results.expected import Expected, read_expected
from fedbench.results.halving_state import Key
from fedbench.results.loading import Found, examine
from fedbench.results.result import Result
from fedbench.results.suite_tables import SuiteTables
from fedbench.results.tuning import Search, read_searches

if TYPE_CHECKING:
    import pandas
    import pyarrow

NAMES = ("scenario", "method", "variant", "seed", "candidate", "backbone", "dataset", "profile")
TEXTS = ("split", "domain", "metric", "what", "output", "device", "corrupted", "rejected")  # few values, many rows


@dataclass(frozen=True)
class Loaded:
    """What lies under some folders.

    `cells` has a row for each name, in the order of the suites. Several names may have one cell. Its columns:

    - suite, scenario, method, variant, seed, candidate (of a tuning, else missing), backbone, dataset, profile
    - place: the number of the cell, by which the rows of `table` are found; id: of the cell; folder: where it lies
    - status: of the manifest, or `pending`, or `damaged` with what is wrong as `fault`; reason, seconds, started
    - rounds: as configured, 0 where the cell was not started
    - manifest: as this name has it, with its own scenario in `config`; empty where the cell was not started
    - shared: what the suite gives all others, where the method brings settings of its own; else None

    Attributes:
        cells: one row a name.
        wrong: a line on everything that is not as it was written; what it concerns is `damaged`.
        undecided: names of candidates whose methods have no other name, as rows like those of `cells`.
        searches: by suite and contest (scenario, variant, method), what its candidates were drawn in.
        expected: by suite, a paper's numbers.
    """

    cells: pandas.DataFrame
    wrong: Sequence[str]
    undecided: pandas.DataFrame
    searches: Mapping[str, Mapping[Key, Search]]
    expected: Mapping[str, Sequence[Expected]]
    _found: Found = field(repr=False)

    @property
    def eval(self) -> pandas.DataFrame:
        """The scores of finished cells: round, split, domain, client, metric, value, examples, and `place`."""
        return self.table("eval")

    @property
    def rounds(self) -> pandas.DataFrame:
        """What each client did in each round of finished cells, and `place`."""
        return self.table("rounds")

    def table(self, kind: str, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """The rows of all finished cells of one of `columns.COLUMNS`, in the order of `place`.

        Texts are categorical, integers that may be missing are Int64.

        Args:
            kind: as `eval` or `rounds`.
            columns: those that are wanted; None for all. `place` comes first in any case.
        """
        return self._table(kind, tuple(columns) if columns else tuple(COLUMNS[kind]))

    @functools.cache  # noqa: B019  a frame is read once, and lives as long as this does
    def _table(self, kind: str, columns: tuple[str, ...]) -> pandas.DataFrame:
        import numpy as np
        import pyarrow as pa

        suites: dict[SuiteTables, dict[str, int]] = {}
        first = self.cells.drop_duplicates("place")
        for place, result in zip(first["place"], (self._found.results[i] for i in first.index), strict=True):
            if result.status == "finished" and result.cells is not None:
                suites.setdefault(result.cells, {})[result.entry.cell] = place
        parts = []
        for cells, places in suites.items():
            whole = cells.whole(kind, columns)
            place = np.array([places.get(id, -1) for id in whole.spans], np.int32)[whole.cells]
            order = np.argsort(place, kind="stable")[np.count_nonzero(place < 0) :]
            table = whole.table.take(order)
            parts.append(table.add_column(0, "place", pa.array(place[order])))
        if not any(map(len, parts)):
            import pandas

            return pandas.DataFrame(columns=["place", *columns])
        return framed(pa.concat_tables(parts).unify_dictionaries())

    def __hash__(self) -> int:
        return id(self)


def load(paths: Iterable[str | Path], candidates: bool = False) -> Loaded:
    """Everything under results folders, suites' folders or cells' folders.

    Args:
        paths: the folders.
        candidates: those of tunings too, which are left out otherwise.

    Raises:
        UserError: where a path holds no results, or an index cannot be read at all.
    """
    found = examine(paths, candidates).read(("eval", "rounds"))
    folders = {r.suite: r.suite_folder for r in (*found.results, *found.undecided)}
    return Loaded(
        cells=_names(found.results),
        wrong=found.wrong,
        undecided=_names(found.undecided),
        searches={suite: read_searches(folder) for suite, folder in folders.items()},
        expected={suite: read_expected(folder) for suite, folder in folders.items()},
        _found=found,
    )


def _names(results: Sequence[Result]) -> pandas.DataFrame:
    import pandas

    places: dict[Path, int] = {}
    rows = [
        {
            "suite": r.suite,
            **{name: getattr(r.entry, name) for name in NAMES},
            "place": places.setdefault(r.folder, len(places)),
            "id": r.manifest.get("id", r.entry.cell.rpartition("-")[2]),
            "folder": r.folder,
            "status": r.status,
            "fault": r.fault,
            "reason": r.manifest.get("reason") or "",
            "seconds": r.manifest.get("seconds", float("nan")),
            "started": r.manifest.get("started", ""),
            "rounds": r.manifest.get("config", {}).get("train", {}).get("rounds", 0),
            "manifest": r.manifest,
            "shared": r.entry.shared,
        }
        for r in results
    ]
    columns = ("suite", *NAMES, "place", "id", "folder", "status", "fault", "reason", "seconds", "started", "rounds",
               "manifest", "shared")  # fmt: skip
    frame = pandas.DataFrame(rows, columns=list(columns))
    return frame.astype({"candidate": "Int64"})


def framed(table: pyarrow.Table) -> pandas.DataFrame:
    """A table as pandas has it: texts categorical, integers that may be missing Int64."""
    import pandas
    import pyarrow as pa

    for position, name in enumerate(table.column_names):
        if name in TEXTS and not pa.types.is_dictionary(table[name].type):
            table = table.set_column(position, name, table[name].dictionary_encode().unify_dictionaries())
    whole: dict[Any, Any] = {pa.int16(): pandas.Int64Dtype(), pa.int64(): pandas.Int64Dtype()}
    nullable = {name for name in table.column_names if table[name].null_count and pa.types.is_integer(table[name].type)}
    frame: pandas.DataFrame = table.select([n for n in table.column_names if n not in nullable]).to_pandas()
    for name in (n for n in table.column_names if n in nullable):
        frame.insert(table.column_names.index(name), name, table[name].to_pandas(types_mapper=whole.get))
    return frame
