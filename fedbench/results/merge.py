"""Results of several machines in one folder: every cell once, the best there is of it, and no two that disagree."""

from __future__ import annotations

import filecmp
import functools
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedbench.disk import settle, write_atomically
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, ENDED, GIVEN_UP, HALVED
from fedbench.results.diff import differing
from fedbench.results.documents import refuse_links
from fedbench.results.files import CHECKPOINT, MANIFEST, OF_ANY_VERSION, checked_table, damage, has_table, read_manifest
from fedbench.results.identity import mixed_versions
from fedbench.results.index import (
    CELLS,
    INDEX,
    MAKE_SOME,
    Entry,
    Index,
    commit,
    expected_of,
    merged_entries,
    prepare_folder,
    read_index,
)
from fedbench.results.loading import content_hash, examine, what_is_wrong
from fedbench.results.lock import suite_lock
from fedbench.results.pack import Ended, pack, with_cells
from fedbench.results.packed_tables import folder_of
from fedbench.results.result import Result
from fedbench.results.tuning import Key, tunings_of, with_tunings
from fedbench.types.tuning import Tuning

# What gives way to what: a cell that nobody has finished to one that failed, that to one of the target's that can
# resume from a checkpoint, that to a candidate of a tuning that was halved, and all to one with a result.
UNFINISHED, FAILED, RESUMABLE, PART, RESULT = range(5)
MEND = "Choose another folder with --into DIR."
NOTHING = "Nothing was written."


@dataclass(frozen=True)
class Merged:
    """What became of one suite. left: cells that nobody has finished yet; mixed: what computed the others in several
    versions."""

    suite: str
    folder: Path
    copied: int
    kept: int
    left: int
    content_hash: str
    mixed: str = ""


@dataclass
class _Suite:
    """What the shards have of a suite, the folder they are merged into being the first of them if it is there. lock: of
    that folder, held from before it is read where it is there."""

    name: str
    target: Path
    lock: AbstractContextManager[None]
    shards: dict[Path, Index] = field(default_factory=dict)
    named: dict[tuple, Result] = field(default_factory=dict)  # the first result that a name means
    cells: dict[str, Result] = field(default_factory=dict)  # the best there is, by id

    def add(self, shard: Path, index: Index) -> None:
        """Take in what one shard has. Raises: UserError where it contradicts another, or is not as it was written."""
        for folder in (shard / CELLS, *(folder_of(shard, entry.cell) for entry in index.entries)):
            if folder.is_symlink():
                raise UserError(f"{folder}: a link, which may lead to what is nobody's result.\n{NOTHING} Remove it.")
        found = examine([shard], candidates=True).read(COLUMNS)
        torn = [
            f"{result.folder / name}: {wrong}"
            for result in found.results
            if result.manifest.get("files")
            for name, wrong in damage(result.folder, result.manifest, None).items()
        ]
        if wrong := list(dict.fromkeys([*found.wrong, *torn])):
            raise UserError(f"{what_is_wrong(wrong)}\n{NOTHING}")
        for result in found.results:
            first = self.named.setdefault(result.entry.key, result)
            if first.entry.cell != result.entry.cell:
                raise UserError(_two_cells(first, result))
            self._add(result)
        self.shards[shard] = index

    def _add(self, new: Result) -> None:
        old = self.cells.setdefault(new.entry.cell, new)
        if old is new or old.suite_folder == new.suite_folder:
            return
        if self.rank(old)[0] == self.rank(new)[0] == RESULT and (apart := differing(old, new)):
            raise UserError(
                f"two results of one cell differ in {', '.join(apart)}:\n  {old.folder}\n  {new.folder}\n"
                f"{NOTHING} Delete the one that is wrong; the other is then taken."
            )
        if self.rank(new) > self.rank(old):
            self.cells[new.entry.cell] = new

    def rank(self, result: Result) -> tuple[int, int]:
        """Which of two results of a cell is taken: the larger; of parts the one that came further, of equal results
        the one with more tables."""
        if result.status in GIVEN_UP:
            return FAILED, 0
        if result.status == HALVED:
            return PART, result.manifest.get("round", 0)
        if result.status in ENDED:
            kinds = [kind for kind in COLUMNS if has_table(kind, result.folder, result.manifest)]
            if result.status == "finished" and not {"eval", "rounds"} <= {*kinds}:
                raise UserError(f"{result.folder}: its status is finished, but its tables are not all there.")
            return RESULT, len(kinds)
        stays = result.suite_folder == self.target.absolute()
        return (RESUMABLE if stays and (result.folder / CHECKPOINT).is_dir() else UNFINISHED), 0


def merge(shards: Iterable[str | Path], into: str | Path) -> list[Merged]:
    """Join results folders, or suites' folders, in the results folder `into`, and say what became of every suite.

    Cells are read from all of them, and packed in one. What is in `into` already is kept. Cells that nobody finished
    are named in the index alone. Raises: UserError before anything is written where a folder holds no results, a
    cell's results differ, or one name means two cells.
    """
    into = Path(into)
    if (into / INDEX).is_file() or (into / MANIFEST).is_file():
        raise UserError(f"{into}: --into takes a results folder, which holds the suites' folders; this is one of them.")
    suites: dict[str, _Suite] = {}
    with ExitStack() as held:
        for folder in (found for shard in shards for found in suite_folders(Path(shard))):
            if (index := read_index(folder)) is None:
                continue
            if index.suite not in suites:
                suites[index.suite] = _started(index.suite, into / index.suite, held)
            if folder.resolve() not in [known.resolve() for known in suites[index.suite].shards]:
                suites[index.suite].add(folder, index)
        parts = {suite.name: (_expected(suite), _tunings(suite)) for suite in suites.values()}
        return [_write(suite, *parts[suite.name]) for suite in suites.values()]


def suite_folders(path: Path) -> list[Path]:
    """The folders of suites in a results folder, or the one that this is. Raises: UserError where there are none."""
    found = [path] if (path / INDEX).is_file() else sorted(index.parent for index in path.glob(f"*/{INDEX}"))
    if not found:
        raise UserError(f"{path}: no fedbench results: neither a results folder nor a suite's folder.\n{MAKE_SOME}")
    return found


def _started(name: str, target: Path, held: ExitStack) -> _Suite:
    suite = _Suite(name, target, suite_lock(target, "fedbench merge"))
    if os.path.lexists(target):
        refuse_links(target, "--into")
        prepare_folder(target)
        held.enter_context(suite.lock)
        suite.lock = nullcontext()
    if index := read_index(target):
        suite.add(target, index)
    return suite


def _two_cells(one: Result, other: Result) -> str:
    """Why two results cannot both be what one name means."""
    apart = [
        f"{part}.{name}"
        for part in ("config", "fingerprints", "versions")
        for name in sorted({name for result in (one, other) for name in result.manifest.get(part, {})})
        if one.manifest and other.manifest and one.manifest[part].get(name) != other.manifest[part].get(name)
    ]
    return (
        f"one name, two cells{': they differ in ' + ', '.join(apart) if apart else ''}:\n"
        f"  {one.folder}\n  {other.folder}\n"
        f"{NOTHING} Shards are parts of one suite, run with the same versions of fedbench, torch, timm, "
        "loralib and numpy."
    )


def _expected(suite: _Suite) -> list[Mapping[str, Any]]:
    """A paper's numbers, about which all shards that have some agree."""
    having = {shard: index for shard, index in suite.shards.items() if index.expected}
    first = next(iter(having), Path())
    for shard, index in having.items():
        if expected_of(index, shard) != expected_of(having[first], first):
            raise UserError(_two_indexes("sets of a paper's numbers for one suite", first, shard))
    return list(having[first].expected) if having else []


def _tunings(suite: _Suite) -> dict[Key, Tuning]:
    """What the candidates of every contest were drawn in, about which all shards that have candidates of it agree."""
    found: dict[Key, tuple[Tuning, Path]] = {}
    for shard, index in suite.shards.items():
        for key, tuning in tunings_of(index, shard).items():
            first, where = found.setdefault(key, (tuning, shard))
            if first != tuning:
                what = f"tunings of {' · '.join(filter(None, (suite.name, *key)))}"
                raise UserError(_two_indexes(what, where, shard))
    return {key: tuning for key, (tuning, _) in found.items()}


def _two_indexes(what: str, one: Path, other: Path) -> str:
    return f"two {what}:\n  {one / INDEX}\n  {other / INDEX}\n{NOTHING}"


def _write(suite: _Suite, expected: list[Mapping[str, Any]], tunings: Mapping[Key, Tuning]) -> Merged:
    target = suite.target
    prepare_folder(target)
    ranks = {id: suite.rank(result)[0] for id, result in suite.cells.items()}
    there = target.absolute()
    taken = {i: r for i, r in suite.cells.items() if ranks[i] != UNFINISHED and r.suite_folder != there}
    with suite.lock:
        if (old := read_index(target)) != suite.shards.get(target):
            raise UserError(f"{target}: a run began here while the shards were read. Run `fedbench merge` again.")
        index = replace(old or Index(suite.name), suite=suite.name, expected=expected)
        if not index.seeds:
            index = replace(index, seeds=next((one.seeds for one in suite.shards.values() if one.seeds), index.seeds))
        entries: list[Entry] = []
        for shard in suite.shards.values():
            entries = merged_entries(entries, shard.entries)
        index = with_tunings(replace(index, entries=entries), target, tunings)
        for id, result in taken.items():
            _copy_others(result.folder, folder_of(target, id))
        if taken:
            index = with_cells(target, index, {id: _ended(result) for id, result in taken.items()})
        if index != old:
            commit(target, index)
        for id in taken:  # what was there of it, which gives way
            (folder_of(target, id) / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder_of(target, id) / CHECKPOINT, ignore_errors=True)
        pack(target)
    left = sum(rank in (UNFINISHED, RESUMABLE) for rank in ranks.values())
    kept = len(suite.cells) - len(taken) - left
    mixed = mixed_versions((r.manifest for r in suite.cells.values() if r.status == "finished"), plugins=True)
    return Merged(suite.name, target, len(taken), kept, left, content_hash(target), mixed)


def _ended(result: Result) -> Ended:
    """A result as it is packed. Raises: UserError where a table is not as it was written."""
    manifest = read_manifest(result.folder) or {}  # the result's own has the configuration of one of its names
    kinds = [kind for kind in COLUMNS if has_table(kind, result.folder, manifest)]
    return Ended(manifest, {kind: checked_table(kind, result.folder, manifest) for kind in kinds})


def _copy_others(source: Path, target: Path) -> None:
    """Copy what is not packed of a cell: its state, and what it printed."""
    for name in sorted(os.listdir(source)) if source.is_dir() else ():
        if name in (MANIFEST, *OF_ANY_VERSION) or name.startswith(".") or (source / name).is_symlink():
            continue
        if (source / name).is_file():
            write_atomically(target / name, functools.partial(_copy, source / name), MEND)


def _copy(source: Path, copy: Path) -> None:
    shutil.copyfile(source, copy)
    settle(copy)
    if not filecmp.cmp(source, copy, shallow=False):
        raise UserError(f"{copy}: what was written is not what {source} holds. Is the disk in order?")
