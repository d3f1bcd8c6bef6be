"""Everything under a folder as a list of results, and the files of a cell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.results.files import fault
from fedbench.results.index import INDEX, MAKE_SOME, SOME, Entry, read_index, visible
from fedbench.results.manifest import MANIFEST, read_manifest
from fedbench.results.status import PENDING
from fedbench.results.tables import BESIDE, COLUMNS, TIMINGS, arrow_schema, read_table, what_is_said
from fedbench.words import shortened

if TYPE_CHECKING:
    import pandas
    import pyarrow


@dataclass(frozen=True)
class Result:
    """One entry with its cell: the manifest at once, the tables when they are asked for.

    manifest is empty and status "pending" where the cell has not been started.
    """

    suite: str
    entry: Entry
    folder: Path
    manifest: Mapping[str, Any]

    @property
    def status(self) -> str:
        return self.manifest.get("status", PENDING)

    @property
    def num_rounds(self) -> int:
        """T, as configured; where a stranger's configuration says less, the last round that is recorded."""
        configured = self.manifest.get("config", {}).get("train", {}).get("rounds", 0)
        return max(configured, *self.rounds["round"].to_pylist(), 1)

    @cached_property
    def eval(self) -> pyarrow.Table:
        return self._table("eval")

    @cached_property
    def rounds(self) -> pyarrow.Table:
        return self._table("rounds")

    @cached_property
    def layers(self) -> pyarrow.Table:
        """Raises: UserError where an older fedbench, which did not record layers, computed the cell."""
        path = self.folder / "layers.parquet"
        if self.status == "finished" and not path.is_file():
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
    def right(self) -> pyarrow.Table:
        """Without rows where an older fedbench, which did not record it, computed the cell."""
        return self._table_or_none("right")

    def _table_or_none(self, kind: str) -> pyarrow.Table:
        return self._table(kind) if (self.folder / f"{kind}.parquet").is_file() else _empty(kind)


def checked_table(kind: str, folder: Path, manifest: Mapping[str, Any]) -> pyarrow.Table:
    """Raises: UserError where it is not as it was written; a changed bit could pass for another number."""
    path = folder / f"{kind}.parquet"
    facts = manifest.get("files", {}).get(path.name)
    if facts and (wrong := fault(path, facts)):
        raise UserError(f"{path}: {wrong}.\nRun the suite again: only that cell is computed anew.")
    return read_table(kind, path)


def _empty(kind: str) -> pyarrow.Table:
    """A table without rows, made of no batches: Arrow's arrays, empty ones too, import pandas."""
    from pyarrow import Table

    return Table.from_batches([], schema=arrow_schema(kind))


def load(paths: Iterable[str | Path], candidates: bool = False) -> list[Result]:
    """Everything under the given results roots, suite folders or cell folders, in the order of the suites.

    candidates: those of tunings too, which are left out otherwise, but where a path is their own folder. Foreign files
    are ignored. Two suites of one name in different folders are kept apart: the folder is added to the name. Raises:
    UserError where a path holds no results, or a file of ours cannot be read.
    """
    found: dict[tuple[Path, tuple], Result] = {}
    for path in paths:
        for result in _load_one(Path(path), candidates):
            found.setdefault((result.folder.parent.resolve(), result.entry.key), result)
    folders: dict[str, set[Path]] = {}
    for (folder, _), result in found.items():
        folders.setdefault(result.suite, set()).add(folder)
    alike = {suite for suite, places in folders.items() if len(places) > 1}
    return [
        replace(result, suite=f"{result.suite} ({result.folder.parent})") if result.suite in alike else result
        for result in found.values()
    ]


def _load_one(path: Path, candidates: bool) -> list[Result]:
    if not path.is_dir():
        what = "a file, not a folder" if path.exists() else "no such folder"
        raise UserError(
            f"{path}: {what}. Wanted: a results folder, a suite's folder in it or a cell's folder.\n{MAKE_SOME}"
        )
    if (path / MANIFEST).is_file():
        return _load_cell(path)
    suites = [path] if (path / INDEX).is_file() else sorted(p.parent for p in path.glob(f"*/{INDEX}"))
    if results := [result for suite in suites for result in _load_suite(suite)]:
        return [result for result in results if candidates or result.entry.candidate is None]
    raise UserError(
        f"{path}: no fedbench results. Looked for {INDEX} here and one folder down, and for {MANIFEST} here; "
        f"found {shortened(visible(path), SOME) or 'nothing'}.\n{MAKE_SOME}"
    )


def _load_suite(folder: Path) -> list[Result]:
    index = read_index(folder)
    if index is None:
        return []
    manifests = {cell: read_manifest(folder / cell) or {} for cell in {e.cell for e in index.entries}}
    return [Result(index.suite, entry, folder / entry.cell, manifests[entry.cell]) for entry in index.entries]


def _load_cell(folder: Path) -> list[Result]:
    """The entries that point to this cell; where its suite is not around, one made from its configuration."""
    folder = folder.resolve()
    if listed := [result for result in _load_suite(folder.parent) if result.folder == folder]:
        return listed
    manifest = read_manifest(folder) or {}
    config = manifest["config"]

    def name(key: str) -> str:
        return config.get(key, {}).get("name", "")

    entry = Entry(
        scenario=folder.name.rpartition("-")[0] or folder.name,
        method=name("method"),
        variant="",
        seed=config.get("seed", 0),
        cell=folder.name,
        backbone=name("backbone"),
        dataset=name("data"),
        profile=config.get("profile", ""),
    )
    return [Result(folder.parent.name, entry, folder, manifest)]


def content_hash(folder: str | Path) -> str:
    """A hash (hex) over everything the results under `folder` say, without timings, machine and git revision.

    Equal for two runs of one suite, whatever the number of workers, the order of cells or the interruptions.
    """
    seen: dict[str, Any] = {}
    for result in load([folder], candidates=True):
        # Not by its folder, whose name begins with whichever of the cell's names was computed first.
        cell = seen.setdefault(f"{result.suite}/{result.manifest.get('id', result.entry.cell)}", {"entries": []})
        cell["entries"].append({name: value for name, value in result.entry.facts.items() if name != "cell"})
        cell |= {k: said for k, said in cell_content(result.folder, result.manifest).items() if k not in BESIDE}
    for cell in seen.values():
        cell["entries"].sort(key=json.dumps)
    return hash_of_json(seen)


def cell_content(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell says, without timings, machine and git revision: `manifest` and each table that is there, or that the
    manifest describes. Raises: UserError where one is not as it was written."""
    tables = {kind: f"{kind}.parquet" for kind in COLUMNS}
    return {"manifest": {k: v for k, v in manifest.items() if k not in TIMINGS["manifest"]}} | {
        kind: what_is_said(kind, checked_table(kind, folder, manifest))
        for kind, name in tables.items()
        if name in manifest.get("files", {}) or (folder / name).is_file()
    }


def load_results(path: str | Path = "results") -> pandas.DataFrame:
    """All finished results under `path` as one tidy table: a row per round, split, domain, client and metric.

    Columns: suite, scenario, method, variant, seed, backbone, dataset, profile, then those of eval.parquet
    (accuracy is a fraction).
    """
    import pandas

    names = ("scenario", "method", "variant", "seed", "backbone", "dataset", "profile")
    frames = []
    for result in load([path]):
        if result.status == "finished":
            frame = result.eval.to_pandas()
            for place, name in enumerate(names):
                frame.insert(place, name, getattr(result.entry, name))
            frame.insert(0, "suite", result.suite)
            frames.append(frame)
    columns = ["suite", *names, *COLUMNS["eval"]]
    return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(columns=columns)
