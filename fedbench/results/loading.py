"""Everything under a folder as a list of results, and what is not as it was written."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.disk import as_written, expanded, hash_of_json
from fedbench.errors import UserError
from fedbench.results.files import ALWAYS, MANIFEST, digest_of_cell, read_manifest
from fedbench.results.index import CELLS, INDEX, MAKE_SOME, SOME, Entry, visible
from fedbench.results.packed_tables import PackedTables, folder_of, packed_tables, stamp_of, suite_folder_of
from fedbench.results.result import Result, SuiteTables, first_line
from fedbench.words import counted, shortened

MOST_TOLD = 20  # lines on what is wrong


@dataclass(frozen=True)
class Loaded:
    """What lies under a folder.

    Attributes:
        wrong: a line on everything that is not as it was written, its path first; results that cannot be shown without
            it have a fault.
        undecided: where candidates are left out, those of methods of which the index names nothing else.
    """

    results: list[Result]
    wrong: list[str]
    undecided: Sequence[Result] = ()

    def read(self, kinds: Iterable[str]) -> Loaded:
        """With the faults of finished results whose tables of these kinds are not as they were written.

        Of a cell in a folder any of them is a fault. Of packed cells the scores are; a result without another of its
        tables is without what that feeds.
        """
        kinds, results, torn = tuple(kinds), list[Result](), dict[str, None]()
        by_suite: dict[SuiteTables, list[str]] = {}
        for result in self.results:
            if result.status == "finished" and result.cells is not None:
                by_suite.setdefault(result.cells, []).append(result.entry.cell)
        for suite, ids in by_suite.items():
            suite.check(kinds, ids)
            torn |= dict.fromkeys(map(first_line, suite.packed.damaged.values()))
        for result in self.results:
            cells = result.cells if result.status == "finished" else None
            if cells and (fault := cells.fault(result.entry.cell, result.manifest)):
                result = replace(result, fault=first_line(fault))
                torn[result.fault] = None
            results.append(result)
        return replace(self, results=results, wrong=list(dict.fromkeys((*self.wrong, *torn))))

    def only(self, chosen: Callable[[list[Result]], list[Result]]) -> Loaded:
        """With these of the results, and of the undecided candidates."""
        kept = set(map(id, chosen([*self.results, *self.undecided])))
        results, undecided = ([r for r in some if id(r) in kept] for some in (self.results, self.undecided))
        return replace(self, results=results, undecided=undecided)


def load(paths: Iterable[str | Path], candidates: bool = False) -> list[Result]:
    """The results of `examine`. Raises: UserError as it does, and where anything is not as it was written; a table is
    checked when it is read."""
    found = examine(paths, candidates)
    if found.wrong:
        raise UserError(what_is_wrong(found.wrong))
    return found.results


def what_is_wrong(wrong: Sequence[str]) -> str:
    """The lines of `Loaded.wrong` as a message."""
    more = [f"... and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
    lines = "".join(f"\n  {line}" for line in [*wrong[:MOST_TOLD], *more])
    mend = "Run the whole suite again, which computes what is lost and keeps the rest."
    if any(line.partition(": ")[0].endswith(INDEX) for line in wrong):
        mend += f" An {INDEX} must be restored from a copy: it names what is packed."
    return f"damaged (the checksum does not match):{lines}\n{mend}"


def examine(paths: Iterable[str | Path], candidates: bool = False) -> Loaded:
    """Everything under the given results roots, suite folders or cell folders, in the order of the suites.

    A suite whose index is not as it was written is left out, with a line in `wrong`; of a packed table only what it
    feeds is. Two suites of one name in different folders are kept apart: the folder is added to the name. Foreign files
    are ignored.

    Args:
        paths: the folders.
        candidates: those of tunings too, which are left out otherwise, but where a path is their own folder.

    Raises:
        UserError: where a path holds no results.
    """
    found: dict[tuple[Path, tuple], Result] = {}
    undecided: dict[tuple[Path, tuple], Result] = {}
    wrong: dict[str, None] = {}
    whole = functools.cache(Path.resolve)
    for path in paths:
        there = _look(as_written(expanded(path)), candidates)
        wrong |= dict.fromkeys(there.wrong)
        for some, known in ((there.results, found), (there.undecided, undecided)):
            for result in some:
                known.setdefault((whole(result.suite_folder), result.entry.key), result)
    folders: dict[str, set[Path]] = {}
    for (folder, _), result in (found | undecided).items():
        folders.setdefault(result.suite, set()).add(folder)
    shared = {suite for suite, own in folders.items() if len(own) > 1}
    results, others = (
        [replace(r, suite=f"{r.suite} ({_here(r.suite_folder)})") if r.suite in shared else r for r in known.values()]
        for known in (found, undecided)
    )
    return Loaded(results, list(wrong), others)


def _here(folder: Path) -> Path:
    """A folder as people call it: from the working directory, where it is inside of it."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _look(path: Path, candidates: bool) -> Loaded:
    if _is_cell(path):
        return _look_at_cell(path)
    if not path.is_dir():
        what = "a file, not a folder" if path.exists() else "no such folder"
        raise UserError(
            f"{path}: {what}. Wanted: a results folder, a suite's folder in it or a cell's folder.\n{MAKE_SOME}"
        )
    suites = [path] if (path / INDEX).is_file() else sorted(p.parent for p in path.glob(f"*/{INDEX}"))
    # An index without entries is a result too: a shard may have had nothing to compute.
    if there := [_look_at_suite(suite) for suite in suites]:
        results = [result for found in there for result in found.results]
        chosen = [result for result in results if candidates or result.entry.candidate is None]
        wrong = [line for found in there for line in found.wrong]
        return Loaded(chosen, wrong, [] if candidates else _undecided(results))
    if cells := sum(1 for deep in ("", "*/") for _ in path.glob(f"{deep}{CELLS}/*/{MANIFEST}")):
        raise UserError(
            f"{path}: {counted(cells, 'cell')} without the {INDEX} that names them.\nRun the whole suite again with "
            "the same --results: what is finished is kept, and named there again."
        )
    raise UserError(
        f"{path}: no fedbench results. Looked for {INDEX} here and one folder down, and for {MANIFEST} here; "
        f"found {shortened(visible(path), SOME) or 'nothing'}.\n{MAKE_SOME}"
    )


def _is_cell(path: Path) -> bool:
    """Whether a path is a cell's folder, which need not be there any more where the cell is packed."""
    if (path / MANIFEST).is_file():
        return True
    if path.absolute().parent.name != CELLS:
        return False
    tables = packed_tables(suite_folder_of(path))
    return path.name in tables.ids or CELLS in tables.damaged


def _undecided(results: Sequence[Result]) -> list[Result]:
    """The candidates of methods of which nothing else is named."""

    def whose(result: Result) -> tuple:
        return result.suite_folder, result.entry.scenario, result.entry.variant, result.entry.method

    reporting = {whose(r) for r in results if r.entry.candidate is None}
    return [r for r in results if r.entry.candidate is not None and whose(r) not in reporting]


def _look_at_suite(folder: Path, cell: str | None = None) -> Loaded:
    """The results of a suite's folder, or of one cell in it. One whose files are not as written has no results.

    A run may pack cells while they are looked for: then its new index is read.
    """
    while True:
        before = stamp_of(folder)
        try:
            found = _seen(folder, cell)
        except UserError as error:
            found = Loaded([], [first_line(error)])
        if stamp_of(folder) == before:
            return found


def _seen(folder: Path, cell: str | None) -> Loaded:
    """As `_look_at_suite`, at one instant. Raises: UserError."""
    tables = packed_tables(folder)
    index = tables.index
    tables.verify()
    entries = [entry for entry in (index.entries if index else ()) if cell in (None, entry.cell)]
    manifests: dict[str, Mapping[str, Any]] = {}
    faults: dict[str, str] = {}
    packed = [first_line(wrong) for wrong in tables.damaged.values()]
    bare: list[str] = []
    loose = _loose(folder)
    for id in dict.fromkeys(entry.cell for entry in entries):
        try:
            manifest = read_manifest(folder_of(folder, id)) if id in loose else tables.manifest(id)
        except UserError as error:
            faults[id] = first_line(error)
            continue
        if manifest is not None:
            manifests[id] = manifest
        elif id in loose and any((folder_of(folder, id) / name).is_file() for name in ALWAYS):
            faults[id] = f"{folder_of(folder, id) / MANIFEST}: missing"
            bare.append(id)
        elif CELLS in tables.damaged:
            faults[id] = first_line(tables.damaged[CELLS])
    wrong = list(dict.fromkeys(packed + [fault for id, fault in faults.items() if id not in bare]))
    if bare:
        wrong.append(f"{folder}: {counted(len(bare), 'cell')} with tables and no {MANIFEST}: {shortened(bare)}")
    finished = {id for id, manifest in manifests.items() if manifest["status"] == "finished"}
    own = {id: (folder_of(folder, id), manifests[id]) for id in finished if "tables" not in manifests[id]}
    suite, results, cells = index.suite if index else "", [], SuiteTables(folder.absolute(), tables, own)
    for entry in entries:
        seen = entry.seen(manifests[entry.cell]) if entry.cell in manifests else {}
        results.append(Result(suite, entry, folder_of(folder, entry.cell), seen, faults.get(entry.cell, ""), cells))
    return Loaded(results, wrong)


def _loose(folder: Path) -> set[str]:
    """The ids of cells that have a folder."""
    with suppress(OSError):
        return set(os.listdir(folder / CELLS))
    return set()


def _look_at_cell(folder: Path) -> Loaded:
    """The entries that point to this cell; where its suite is not around, one made from its configuration."""
    folder = folder.resolve()
    listed = _look_at_suite(suite_folder_of(folder), folder.name)
    if listed.results:
        return listed
    if (manifest := read_manifest(folder)) is None:
        raise UserError(what_is_wrong(listed.wrong or [f"{folder}: no cell"]))
    config = manifest["config"]

    def name(key: str) -> str:
        return config.get(key, {}).get("name", "")

    entry = Entry(
        scenario=folder.name,
        method=name("method"),
        variant="",
        seed=config.get("seed", 0),
        cell=manifest["id"],
        backbone=name("backbone"),
        dataset=name("data"),
        profile=config.get("profile", ""),
    )
    suite = suite_folder_of(folder)
    cells = SuiteTables(suite, PackedTables(suite, {}), {entry.cell: (folder, manifest)})
    return Loaded([Result(suite.name, entry, folder, manifest, cells=cells)], [])


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
        cell = seen.setdefault(f"{result.suite}/{result.entry.cell}", {"entries": []})
        cell["entries"].append({name: value for name, value in result.entry.facts.items() if name != "cell"})
        if "digest" not in cell:
            cell["digest"] = digest_of_cell(result.folder, result.manifest)
    for cell in seen.values():
        cell["entries"].sort(key=json.dumps)
    cells = {(result.suite, result.entry.cell): result.status for result in results}
    return hash_of_json(seen), Counter(cells.values())
