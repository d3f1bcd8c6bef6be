"""Results of several machines in one folder: every cell once, the best there is of it, and no two that disagree."""

from __future__ import annotations

import filecmp
import functools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedbench.disk import cannot_write, hash_of_json, put_in_place, settle, write_atomically
from fedbench.errors import UserError
from fedbench.results.claims import Claims
from fedbench.results.columns import UNHASHED
from fedbench.results.contest import Key
from fedbench.results.expected import EXPECTED, read_expected
from fedbench.results.identity import id_in
from fedbench.results.index import INDEX, MAKE_SOME, Entry, Index, merge_index, prepare_folder, read_index, visible
from fedbench.results.loading import cell_content, content_hash, examine, what_is_wrong
from fedbench.results.manifest import CHECKPOINT, MANIFEST, read_manifest
from fedbench.results.status import ENDED, GIVEN_UP, HALVED
from fedbench.results.tuning import TUNING, Search, merge_searches, read_searches
from fedbench.results.untrusted import is_folder_name, refuse_links

# What gives way to what: a cell that nobody has finished to one that failed, that to one of the target's that can go on
# from a checkpoint, that to a candidate of a tuning that was halved, the further the better, and all to one with a
# result.
UNFINISHED, FAILED, RESUMABLE, PART, RESULT = range(5)
MEND = "Choose another folder with --into DIR."


@dataclass(frozen=True)
class Merged:
    """What became of one suite. left: cells that nobody has finished yet."""

    suite: str
    folder: Path
    copied: int
    kept: int
    left: int
    content_hash: str


@dataclass(frozen=True)
class _Held:
    """What one shard has of a cell. round: of a part · content: a hash of each part of a result, as of
    `cell_content`."""

    folder: Path
    rank: int
    round: int = 0
    content: Mapping[str, str] = field(default_factory=dict)

    def beats(self, other: _Held) -> bool:
        """Of two results that agree, the one that says more."""
        return (self.rank, self.round, len(self.content)) > (other.rank, other.round, len(other.content))


@dataclass
class _Suite:
    """What the shards have of a suite, the folder they are merged into being the first of them if it is there."""

    name: str
    target: Path
    shards: dict[Path, Sequence[Entry]] = field(default_factory=dict)
    named: dict[tuple, Path] = field(default_factory=dict)  # the first folder that a name means
    cells: dict[str, _Held] = field(default_factory=dict)  # the best there is, by id

    def add(self, shard: Path, entries: Sequence[Entry]) -> None:
        """Take in what one shard has. Raises: UserError where it contradicts another, or itself."""
        if entries and (wrong := examine([shard], candidates=True).wrong):
            raise UserError(f"{what_is_wrong(wrong)}\nNothing was written.")
        for entry in entries:
            first = self.named.setdefault(entry.key, shard / entry.cell)
            if id_in(first.name) != id_in(entry.cell):
                raise UserError(_two_cells(first, shard / entry.cell))
        for name in dict.fromkeys(entry.cell for entry in entries):
            self._add(_read_cell(shard / name, stays=shard == self.target))
        self.shards[shard] = entries

    def _add(self, new: _Held) -> None:
        old = self.cells.setdefault(id_in(new.folder.name), new)
        if old.rank == new.rank == RESULT and (apart := _apart(old.content, new.content)):
            raise UserError(
                f"two results of one cell differ in {', '.join(sorted(apart))}:\n  {old.folder}\n  {new.folder}\n"
                "Nothing was written. Delete the folder of the one that is wrong; the other is then taken."
            )
        if new.beats(old):
            self.cells[id_in(new.folder.name)] = new


def merge(shards: Iterable[str | Path], into: str | Path) -> list[Merged]:
    """Join results folders, or suites' folders, in the results folder `into`, and say what became of every suite.

    Cells are copied, read back, and put in place whole; what is in `into` already is kept. Cells that nobody finished
    are named in the index alone. Raises: UserError before anything is written where a folder holds no results, a
    cell's results differ, or one name means two cells.
    """
    into = Path(into)
    if (into / INDEX).is_file() or (into / MANIFEST).is_file():
        raise UserError(f"{into}: --into takes a results folder, which holds the suites' folders; this is one of them.")
    suites: dict[str, _Suite] = {}
    for folder, index in (found for shard in shards for found in _suite_folders(Path(shard))):
        if not is_folder_name(index.suite):
            raise UserError(f"{folder / INDEX}: {index.suite!r} is not the name of a suite.")
        if index.suite not in suites:
            suites[index.suite] = _started(index.suite, into / index.suite)
        if folder.resolve() not in [known.resolve() for known in suites[index.suite].shards]:
            suites[index.suite].add(folder, index.entries)
    beside = {suite.name: (_expected(suite), _searches(suite)) for suite in suites.values()}
    return [_write(suite, *beside[suite.name]) for suite in suites.values()]


def _suite_folders(path: Path) -> Iterator[tuple[Path, Index]]:
    found = [path] if (path / INDEX).is_file() else sorted(index.parent for index in path.glob(f"*/{INDEX}"))
    if not found:
        raise UserError(f"{path}: no fedbench results: neither a results folder nor a suite's folder.\n{MAKE_SOME}")
    for folder in found:
        if index := read_index(folder):
            yield folder, index


def _started(name: str, target: Path) -> _Suite:
    suite = _Suite(name, target)
    if os.path.lexists(target):
        refuse_links(target, "--into")
        prepare_folder(target)
    if index := read_index(target):
        suite.add(target, index.entries)
    return suite


def _read_cell(folder: Path, stays: bool) -> _Held:
    """stays: whether it lies where all are merged into; checkpoints are not copied."""
    manifest = read_manifest(folder)
    if manifest is None or manifest["status"] not in ENDED:
        return _Held(folder, RESUMABLE if stays and (folder / CHECKPOINT).is_dir() else UNFINISHED)
    if manifest["status"] in GIVEN_UP:
        return _Held(folder, FAILED)
    if manifest["status"] == HALVED:
        return _Held(folder, PART, manifest.get("round", 0))
    content = cell_content(folder, manifest)
    if manifest["status"] == "finished" and not {"eval", "rounds"} <= content.keys():
        raise UserError(f"{folder}: said to be finished, but its tables are not all there.")
    return _Held(folder, RESULT, content={part: hash_of_json(said) for part, said in content.items()})


def _apart(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    """The parts in which two results of a cell differ; one of an older fedbench may be without what came later."""
    parts = {part for part, _ in one.items() ^ other.items()}
    return {part for part in parts if part not in UNHASHED or (part in one and part in other)}


def _two_cells(one: Path, other: Path) -> str:
    """Why two folders cannot both be what one name means."""
    told = [read_manifest(folder) or {} for folder in (one, other)]
    apart = [
        f"{part}.{name}"
        for part in ("config", "fingerprints", "versions")
        for name in sorted({name for manifest in told for name in manifest.get(part, {})})
        if all(told) and told[0][part].get(name) != told[1][part].get(name)
    ]
    return (
        f"one name, two cells{': they differ in ' + ', '.join(apart) if apart else ''}:\n  {one}\n  {other}\n"
        "Nothing was written. Shards are parts of one suite, run with the same versions of fedbench, torch, timm, "
        "loralib and numpy."
    )


def _expected(suite: _Suite) -> Path | None:
    """The file of a paper's numbers, about which all shards that have one agree."""
    files = [shard / EXPECTED for shard in suite.shards if (shard / EXPECTED).is_file()]
    for file in files[1:]:
        if read_expected(file.parent) != read_expected(files[0].parent):
            raise UserError(_two_files("sets of a paper's numbers for one suite", files[0], file))
    return files[0] if files else None


def _searches(suite: _Suite) -> dict[Key, Search]:
    """What the candidates of every contest were drawn in, about which all shards that have candidates of it agree."""
    found: dict[Key, tuple[Search, Path]] = {}
    for shard in suite.shards:
        for key, search in read_searches(shard).items():
            first, where = found.setdefault(key, (search, shard))
            if first != search:
                what = f"tunings of {' · '.join(filter(None, (suite.name, *key)))}"
                raise UserError(_two_files(what, where / TUNING, shard / TUNING))
    return {key: search for key, (search, _) in found.items()}


def _two_files(what: str, one: Path, other: Path) -> str:
    return f"two {what}:\n  {one}\n  {other}\nNothing was written. Delete the outdated one."


def _write(suite: _Suite, expected: Path | None, searches: Mapping[Key, Search]) -> Merged:
    target = suite.target
    prepare_folder(target)
    copied = 0
    there = {id_in(name): name for name in visible(target)}

    def place_of(name: str) -> Path:
        """Where a cell goes: one that is there under another of its names keeps its folder."""
        return target / there.get(id_in(name), name)

    with Claims(target) as claims:
        for id, cell in suite.cells.items():
            if cell.rank == UNFINISHED or cell.folder.parent == target:
                continue
            place = place_of(cell.folder.name)
            if claims.take(id) is None:
                raise UserError(f"{place} is being computed by {claims.holder(id)}: merge when it has ended.")
            if cell.beats(_read_cell(place, stays=True)):
                _put(cell.folder, place)
                there[id] = place.name
                copied += 1
            claims.release(id)
    if expected and expected.parent != target:
        write_atomically(target / EXPECTED, functools.partial(_copy, expected), MEND)
    if searches != read_searches(target):
        merge_searches(target, suite.name, searches)
    for entries in suite.shards.values():
        here = [replace(entry, cell=place_of(entry.cell).name) for entry in entries]
        merge_index(target, suite.name, here)
    left = sum(cell.rank in (UNFINISHED, RESUMABLE) for cell in suite.cells.values())
    kept = len(suite.cells) - copied - left
    return Merged(suite.name, target, copied, kept, left, content_hash(target))


def _put(source: Path, place: Path) -> None:
    """Put a copy of a cell in the place of what is there, whole or not at all."""
    draft, old = (place.with_name(f".{id_in(place.name)}.{what}") for what in ("merge", "old"))
    try:
        with put_in_place(place, draft, old):
            for name in visible(source):
                if (source / name).is_file() and not (source / name).is_symlink():
                    _copy(source / name, draft / name)
    except OSError as error:
        raise cannot_write(place, error, MEND) from error


def _copy(source: Path, copy: Path) -> None:
    shutil.copyfile(source, copy)
    settle(copy)
    if not filecmp.cmp(source, copy, shallow=False):
        raise UserError(f"{copy}: what was written is not what {source} holds. Is the disk in order?")
