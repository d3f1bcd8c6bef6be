"""Results as pandas frames: a row for each name of a cell, and the rows of all cells' tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.results.columns import COLUMNS
from fedbench.results.loading import Loaded, examine, load
from fedbench.results.result import Result, SuiteTables
from fedbench.types import GLOBAL

if TYPE_CHECKING:
    import pandas

NAMES = ("scenario", "method", "variant", "seed", "candidate", "backbone", "dataset", "profile")
KEY = ("suite", "id")  # by which the rows of every table belong to a row of `cells`


class Results:
    """What lies in results folders, as pandas frames that are read when they are asked for.

    `cells` has a row for each name of a cell, and every other frame the rows of all finished cells: each begins with
    `suite` and `id`, by which they are joined. `client` is missing where a row is of all clients.

    Attributes:
        paths: the folders.
        wrong: a line on everything that was left out because it does not match its checksum.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self.paths = list(paths)
        self._found: Loaded = examine(self.paths).read(("eval", "rounds"))
        self.wrong = self._found.wrong
        if self.wrong:
            warnings.warn("\n".join(["left out, checksum mismatch:", *self.wrong]), stacklevel=3)

    @cached_property
    def cells(self) -> pandas.DataFrame:
        """A row for each name of a cell: suite, id, scenario, method, variant, seed, status, reason, seconds and more,
        see `cells_frame`."""
        return cells_frame(self._found.results)

    def table(self, kind: str, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """The rows of all finished cells, see `table_frame`."""
        return table_frame(self._found.results, kind, columns)

    @cached_property
    def eval(self) -> pandas.DataFrame:
        """The scores of finished cells: round, split, domain, client, metric, value."""
        return self.table("eval")

    @cached_property
    def rounds(self) -> pandas.DataFrame:
        """What each client did in each round of finished cells."""
        return self.table("rounds")


def read(paths: str | Path | Iterable[str | Path] = "results") -> Results:
    """The results under one or more folders. What does not match its checksum is left out, with a warning.

    Raises:
        UserError: where a path holds no results.
    """
    return Results([paths] if isinstance(paths, str | Path) else paths)


def cells_frame(results: Sequence[Result]) -> pandas.DataFrame:
    """A row for each name, in the order of the suites; several names may have one cell.

    Its columns:

    - suite, id: of the cell
    - scenario, method, variant, seed, candidate (of a tuning, else missing), backbone, dataset, profile
    - folder: where the cell lies
    - status: of the manifest, or `pending`, or `damaged` with the reason as `fault`; reason, seconds, started
    - rounds: as configured, 0 where the cell was not started
    - manifest: as this name has it, with its own scenario in `config`; empty where the cell was not started
    - shared: what the suite gives all others, where the method brings its own settings; else None
    """
    import pandas

    columns: dict[str, list[Any]] = {
        "suite": [r.suite for r in results],
        "id": [r.entry.cell for r in results],
        **{name: [getattr(r.entry, name) for r in results] for name in NAMES},
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
    """The rows of all finished cells, cell by cell in the order of `results`; texts are categories.

    Args:
        results: of which the cells are read.
        kind: one of `columns.COLUMNS`, such as `eval` or `rounds`.
        columns: those that are wanted; None for all. `suite` and `id` come first in any case.
    """
    import pandas

    names = list(columns or COLUMNS[kind])
    suites: dict[SuiteTables, dict[str, str]] = {}
    for result in results:
        if result.status == "finished" and result.cells is not None:
            suites.setdefault(result.cells, {})[result.entry.cell] = result.suite
    parts = []
    for tables, wanted in suites.items():
        rows = tables.frame(kind, names)
        rows = rows[rows["id"].isin(wanted)]
        ordered = rows["id"].cat.set_categories(list(wanted))
        rows = rows.assign(id=ordered).iloc[ordered.cat.codes.to_numpy().argsort(kind="stable")]
        rows.insert(0, "suite", next(iter(wanted.values())))
        parts.append(rows)
    if not any(map(len, parts)):
        return pandas.DataFrame(columns=[*KEY, *names])
    whole = pandas.concat(parts, ignore_index=True)
    missing = {name: "Int64" for name, kind in COLUMNS[kind].items() if name in names and kind.startswith("int")}
    whole = whole.astype({name: to for name, to in missing.items() if name == "client" or whole[name].isna().any()})
    if "client" in names:
        whole["client"] = whole["client"].mask(whole["client"] == GLOBAL)
    texts = [name for name in (*KEY, *names) if COLUMNS[kind].get(name, "string") == "string"]
    return whole.astype(dict.fromkeys(texts, "category"))


def load_results(path: str | Path = "results") -> pandas.DataFrame:
    """All finished results under `path` as one tidy table: a row per round, split, domain, client and metric.

    Columns: suite, scenario, method, variant, seed, backbone, dataset, profile, then those of eval.parquet
    (accuracy is a fraction). A cell with two names appears twice. Raises: UserError where anything does not match its
    checksum.
    """
    results = load([path])
    names = [name for name in NAMES if name != "candidate"]
    cells = cells_frame(results)[[*KEY, *names]]
    rows = table_frame(results, "eval").astype(dict.fromkeys((*KEY, "split", "domain", "metric"), str))
    return cells.merge(rows, on=list(KEY)).drop(columns="id")
