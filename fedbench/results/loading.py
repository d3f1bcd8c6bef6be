"""Everything under a folder as a list of results, and what is not as it was written."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.results.agreement import disagreement, method_of
from fedbench.results.columns import COLUMNS, TIMINGS, UNHASHED
from fedbench.results.digest import digest_of
from fedbench.results.files import ALWAYS
from fedbench.results.index import INDEX, MAKE_SOME, SOME, Entry, look_at_index, visible
from fedbench.results.kept import LEAST, Keeping, Kept
from fedbench.results.manifest import MANIFEST, read_manifest
from fedbench.results.result import COMPARED, Result, checked_table, first_line, has_table
from fedbench.results.tables import what_is_said
from fedbench.words import counted, shortened

if TYPE_CHECKING:
    import pandas

MOST_TOLD = 20  # lines on what is wrong


@dataclass(frozen=True)
class Found:
    """What lies under a folder. wrong: a line on everything that is not as it was written, its path first; the results
    that it concerns have a fault, and no manifest · undecided: where candidates are left out, those of methods of which
    the index names nothing else."""

    results: list[Result]
    wrong: list[str]
    kept: Mapping[Path, Kept] = field(default_factory=dict)  # by suite's folder, of those that are large
    keeping: Keeping | None = None
    undecided: Sequence[Result] = ()

    def read(self, kinds: Iterable[str]) -> Found:
        """With the tables of these kinds read, as far as a result is finished; of large folders what leaderboards need
        of them is written down for the next reader."""
        kinds, read = tuple(kinds), []
        unread = sum(not result.known for result in self.results)
        tell = self.keeping.tell if self.keeping and self.kept and unread >= LEAST else None
        for n, result in enumerate(self.results):
            if tell:
                tell(n, len(self.results))
            read.append(self._digested(result, kinds) if result.folder.parent in self.kept else result.examined(kinds))
        for kept in self.kept.values():
            kept.save()
        torn = [now.fault for now, was in zip(read, self.results, strict=True) if now.fault != was.fault]
        return replace(self, results=read, wrong=list(dict.fromkeys((*self.wrong, *torn))))

    def only(self, chosen: Callable[[list[Result]], list[Result]]) -> Found:
        """With these of the results, and of the undecided candidates."""
        kept = set(map(id, chosen([*self.results, *self.undecided])))
        results, undecided = ([r for r in some if id(r) in kept] for some in (self.results, self.undecided))
        return replace(self, results=results, undecided=undecided)

    def _digested(self, result: Result, kinds: Sequence[str]) -> Result:
        """Of a large folder, without its tables: all of them together would take more memory than there is."""
        if result.known and not set(kinds) - set(COMPARED):
            return result
        kept, cell = self.kept[result.folder.parent], result.folder.name
        read = replace(result, known=result.known or kept.digest(cell)).examined(kinds)
        if read.known or read.status != "finished":
            return read
        try:
            # Not `read.digest`, which the result would hold on to, and with it the result itself with all its tables.
            return replace(result, known=kept.add_digest(cell, digest_of(read)))
        except UserError as error:
            return replace(result, fault=first_line(error))


def load(paths: Iterable[str | Path], candidates: bool = False) -> list[Result]:
    """The results of `examine`. Raises: UserError as it does, and where anything is not as it was written; of a table
    that is told when it is read."""
    found = examine(paths, candidates)
    if found.wrong:
        raise UserError(what_is_wrong(found.wrong))
    return found.results


def what_is_wrong(wrong: Sequence[str]) -> str:
    """The lines of `Found.wrong` as a message."""
    more = [f"... and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
    lines = "".join(f"\n  {line}" for line in [*wrong[:MOST_TOLD], *more])
    return (
        f"not as it was written:{lines}\n"
        f"Delete the folder of such a cell, or {INDEX}, and run the whole suite again: what is finished is kept."
    )


def examine(paths: Iterable[str | Path], candidates: bool = False, keeping: Keeping | None = None) -> Found:
    """Everything under the given results roots, suite folders or cell folders, in the order of the suites, believed as
    far as the index, the manifests and their cells' ids agree.

    candidates: those of tunings too, which are left out otherwise, but where a path is their own folder · keeping:
    believe of large folders what was kept of files that have not changed since, see `fedbench.results.kept`; None reads
    all. Foreign files are ignored. Two suites of one name in different folders are kept apart: the folder is added to
    the name. Raises: UserError where a path holds no results, or an index cannot be read at all.
    """
    found: dict[tuple[Path, tuple], Result] = {}
    undecided: dict[tuple[Path, tuple], Result] = {}
    wrong: dict[str, None] = {}
    kept: dict[Path, Kept] = {}
    for path in paths:
        there = _look(Path(path), candidates, keeping)
        kept |= there.kept
        wrong |= dict.fromkeys(there.wrong)
        whole = functools.cache(Path.resolve)
        for some, known in ((there.results, found), (there.undecided, undecided)):
            for result in some:
                known.setdefault((whole(result.folder.parent), result.entry.key), result)
    folders: dict[str, set[Path]] = {}
    for (folder, _), result in (found | undecided).items():
        folders.setdefault(result.suite, set()).add(folder)
    alike = {suite for suite, places in folders.items() if len(places) > 1}
    results, others = (
        [replace(r, suite=f"{r.suite} ({r.folder.parent})") if r.suite in alike else r for r in known.values()]
        for known in (found, undecided)
    )
    return Found(results, list(wrong), kept, keeping, others)


def _look(path: Path, candidates: bool, keeping: Keeping | None) -> Found:
    if not path.is_dir():
        what = "a file, not a folder" if path.exists() else "no such folder"
        raise UserError(
            f"{path}: {what}. Wanted: a results folder, a suite's folder in it or a cell's folder.\n{MAKE_SOME}"
        )
    if (path / MANIFEST).is_file():
        return _look_at_cell(path)
    suites = [path] if (path / INDEX).is_file() else sorted(p.parent for p in path.glob(f"*/{INDEX}"))
    # An index without entries is a result too: a shard may have had nothing to compute.
    if there := [found for suite in suites if (found := _look_at_suite(suite, keeping=keeping))]:
        results = [result for found in there for result in found.results]
        chosen = [result for result in results if candidates or result.entry.candidate is None]
        kept = {folder: one for found in there for folder, one in found.kept.items()}
        undecided = [] if candidates else _undecided(results)
        return Found(chosen, [line for found in there for line in found.wrong], kept, undecided=undecided)
    if cells := len({manifest.parent for deep in ("*", "*/*") for manifest in path.glob(f"{deep}/{MANIFEST}")}):
        raise UserError(
            f"{path}: {counted(cells, 'cell')} without the {INDEX} that names them.\nRun the whole suite again with "
            "the same --results: what is finished is kept, and named there again."
        )
    raise UserError(
        f"{path}: no fedbench results. Looked for {INDEX} here and one folder down, and for {MANIFEST} here; "
        f"found {shortened(visible(path), SOME) or 'nothing'}.\n{MAKE_SOME}"
    )


def _undecided(results: Sequence[Result]) -> list[Result]:
    """The candidates of methods of which nothing else is named."""

    def whose(result: Result) -> tuple:
        return result.folder.parent, result.entry.scenario, result.entry.variant, result.entry.method

    reporting = {whose(r) for r in results if r.entry.candidate is None}
    return [r for r in results if r.entry.candidate is not None and whose(r) not in reporting]


def _look_at_suite(folder: Path, cell: str | None = None, keeping: Keeping | None = None) -> Found | None:
    """The results of a suite's folder, or of one cell in it; None where it has no index."""
    index = look_at_index(folder)
    if index is None:
        return None
    entries = [entry for entry in index.entries if cell in (None, entry.cell)]
    cells = dict.fromkeys(entry.cell for entry in entries)
    kept = keeping.of(folder, len(cells)) if keeping else None
    manifests, faults = _manifests(folder, cells, kept)
    wrong = [f"{folder / INDEX}: {index.torn}"] if index.torn and not index.wrong else []
    wrong += [fault for fault in faults.values() if fault]
    if bare := [name for name, fault in faults.items() if not fault]:
        wrong.append(f"{folder}: {counted(len(bare), 'cell')} with tables and no {MANIFEST}: {shortened(bare)}")
    methods = set() if index.marked else {method_of(manifest) for manifest in manifests.values()}
    results = []
    for entry in entries:
        manifest, fault = manifests.get(entry.cell, {}), index.wrong.get(entry.key)
        if not fault and manifest:
            fault = disagreement(entry, manifest, methods)
        if fault:
            fault = f"{folder / INDEX}: {entry.title}: {fault}"
            wrong.append(fault)
        elif entry.cell in faults:
            fault = faults[entry.cell] or f"{folder / entry.cell / MANIFEST}: missing"
        known = kept.digest(entry.cell) if kept and not fault else None
        results.append(Result(index.suite, entry, folder / entry.cell, {} if fault else manifest, fault or "", known))
    return Found(results, wrong, {folder: kept} if kept else {})


def _manifests(
    folder: Path, cells: Iterable[str], kept: Kept | None
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Of each cell that was started the manifest, or what is wrong with it: nothing of one that is missing, though the
    cell has tables, which nothing but its manifest can vouch for."""
    manifests: dict[str, Mapping[str, Any]] = {}
    faults: dict[str, str] = {}
    for cell in cells:
        if kept and (known := kept.manifest(cell)):
            manifests[cell] = known
            continue
        try:
            manifest = read_manifest(folder / cell)
        except UserError as error:
            faults[cell] = first_line(error)
            continue
        if manifest is not None:
            manifests[cell] = manifest
            if kept:
                kept.add_manifest(cell, manifest)
        elif any((folder / cell / name).is_file() for name in ALWAYS):
            faults[cell] = ""
    return manifests, faults


def _look_at_cell(folder: Path) -> Found:
    """The entries that point to this cell; where its suite is not around, one made from its configuration."""
    folder = folder.resolve()
    listed = _look_at_suite(folder.parent, folder.name)
    if listed and listed.results:
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
    return Found([Result(folder.parent.name, entry, folder, manifest)], [])


def content_hash(folder: str | Path) -> str:
    """A hash (hex) over everything the results under `folder` say, without timings, machine and git revision.

    Equal for two runs of one suite, whatever the number of workers, the order of cells or the interruptions. Raises:
    UserError as `load` does, and where a table is not as it was written: there is no hash of a part.
    """
    return hash_and_status(folder)[0]


def hash_and_status(folder: str | Path) -> tuple[str, Counter[str]]:
    """The `content_hash` of a folder, and how many of its cells have which status."""
    seen: dict[str, Any] = {}
    results = load([folder], candidates=True)
    for result in results:
        # Not by its folder, whose name begins with whichever of the cell's names was computed first.
        cell = seen.setdefault(f"{result.suite}/{result.manifest.get('id', result.entry.cell)}", {"entries": []})
        cell["entries"].append({name: value for name, value in result.entry.facts.items() if name != "cell"})
        cell |= {k: said for k, said in cell_content(result.folder, result.manifest).items() if k not in UNHASHED}
    for cell in seen.values():
        cell["entries"].sort(key=json.dumps)
    cells = {(result.suite, result.entry.cell): result.status for result in results}
    return hash_of_json(seen), Counter(cells.values())


def cell_content(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell says, without timings, machine and git revision: `manifest` and each table that is there, or that the
    manifest describes. Raises: UserError where one is not as it was written."""
    return {"manifest": {k: v for k, v in manifest.items() if k not in TIMINGS["manifest"]}} | {
        kind: what_is_said(kind, checked_table(kind, folder, manifest))
        for kind in COLUMNS
        if has_table(kind, folder, manifest)
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
