"""Results as pandas frames: a row for each name of a cell, and the rows of all cells' tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.results.columns import COLUMNS
from fedbench.results.loading import load
from fedbench.results.result import Result
from fedbench.results.suite_tables import SuiteTables

if TYPE_CHECKING:
    import pandas
    import pyarrow

NAMES = ("scenario", "method", "variant", "seed", "candidate", "backbone", "dataset", "profile")


def cells_frame(results: Sequence[Result]) -> pandas.DataFrame:
    """A row for each name, in the order of the suites; several names may have one cell.

    Its columns:

    - suite, scenario, method, variant, seed, candidate (of a tuning, else missing), backbone, dataset, profile
    - place: the number of the cell, by which the rows of `table_frame` are found
    - id: of the cell; folder: where it lies
    - status: of the manifest, or `pending`, or `damaged` with the reason as `fault`; reason, seconds, started
    - rounds: as configured, 0 where the cell was not started
    - manifest: as this name has it, with its own scenario in `config`; empty where the cell was not started
    - shared: what the suite gives all others, where the method brings its own settings; else None
    """
    import pandas

    places: dict[Path, int] = {}
    columns: dict[str, list[Any]] = {
        "suite": [r.suite for r in results],
        **{name: [getattr(r.entry, name) for r in results] for name in NAMES},
        "place": [places.setdefault(r.folder, len(places)) for r in results],
        "id": [r.manifest.get("id", r.entry.cell) for r in results],
        "folder": [r.folder for r in results],
        "status": [r.status for r in results],
        "fault": [r.fault for r in results],
        "reason": [r.manifest.get("reason") or "" for r in results],
        "seconds": [r.manifest.get("seconds", float("nan")) for r in results],
        "started": [r.manifest.get("started", "") for r in results],
        "rounds": [r.manifest.get("config", {}).get("train", {}).get("rounds", 0) for r in results],
        "manifest": [r.manifest for r in results],
        "shared": [r.entry.shared for r in results],
    }
    return pandas.DataFrame(columns).astype({"candidate": "Int64"})


def table_frame(results: Sequence[Result], kind: str, columns: Sequence[str] | None = None) -> pandas.DataFrame:
    """The rows of all finished cells, by `place` (see `cells_frame`): texts categorical, missing integers Int64.

    Args:
        results: of which the cells are read.
        kind: one of `columns.COLUMNS`, such as `eval` or `rounds`.
        columns: those that are wanted; None for all. `place` comes first in any case.
    """
    import numpy as np
    import pandas
    import pyarrow as pa

    names, places = list(columns or COLUMNS[kind]), dict[Path, int]()
    suites: dict[SuiteTables, dict[str, int]] = {}
    for result in results:
        place = places.setdefault(result.folder, len(places))
        if result.status == "finished" and result.cells is not None:
            suites.setdefault(result.cells, {})[result.entry.cell] = place
    parts = []
    for cells, numbers in suites.items():
        whole = cells.whole(kind, names)
        ids = whole["cell"].combine_chunks()
        known = np.array([numbers.get(id, -1) for id in ids.dictionary.to_pylist()], np.int32)
        place_of = known[ids.indices.to_numpy()]
        order = np.argsort(place_of, kind="stable")[np.count_nonzero(place_of < 0) :]
        parts.append(whole.drop_columns("cell").take(order).add_column(0, "place", pa.array(place_of[order])))
    if not any(map(len, parts)):
        return pandas.DataFrame(columns=["place", *names])
    return _framed(pa.concat_tables(parts).unify_dictionaries())


def _framed(table: pyarrow.Table) -> pandas.DataFrame:
    import pandas
    import pyarrow as pa

    whole: dict[Any, Any] = {pa.int16(): pandas.Int64Dtype(), pa.int64(): pandas.Int64Dtype()}
    nullable = {name for name in table.column_names if table[name].null_count and pa.types.is_integer(table[name].type)}
    names = [name for name in table.column_names if name not in nullable]
    frame: pandas.DataFrame = table.select(names).to_pandas(use_threads=False)  # it has numpy's buffers
    for name in (name for name in table.column_names if name in nullable):
        frame.insert(table.column_names.index(name), name, table[name].to_pandas(types_mapper=whole.get))
    return frame


def load_results(path: str | Path = "results") -> pandas.DataFrame:
    """All finished results under `path` as one tidy table: a row per round, split, domain, client and metric.

    Columns: suite, scenario, method, variant, seed, backbone, dataset, profile, then those of eval.parquet
    (accuracy is a fraction). A cell with two names appears twice.
    """
    results = load([path])
    names = ["suite", *(name for name in NAMES if name != "candidate")]
    rows = table_frame(results, "eval")
    cells = cells_frame(results)[["place", *names]]
    found = cells.merge(rows.astype({"split": "str", "domain": "str", "metric": "str"}), on="place")
    return found.drop(columns="place")
