"""index.json: which names have which cells, and which tables belong to a suite's results."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedbench.disk import cannot_write
from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, DROPPED
from fedbench.results.documents import check, is_folder_name, read_sealed, typed, write_json
from fedbench.words import shortened

INDEX = "index.json"
CELLS = "cells"  # the folder of cells that are at work or not packed yet
SOME = 5  # names of files that are none of fedbench's, in a message
Key = tuple[str, str, str, int, int | None]  # scenario, method, variant, seed, candidate
MAKE_SOME = "`fedbench run SUITE.yaml` makes results (in results/ unless --results says otherwise)."
MEND = f"Restore it from a copy, or delete the suite's folder and run the whole suite again.\n{MAKE_SOME}"


@dataclass(frozen=True)
class Entry:
    """One name under which a cell appears. Several entries may have one cell.

    Attributes:
        cell: its id.
        shared: of a method that brings settings of its own, what its suite gives all others in place of those sections:
            what it has itself stands in the cell's configuration.
        candidate: of a tuning, the number of the one that this cell tries; None for a cell that reports.
        ignored: what this name's scenario sets of the parts that the cell's method does not read, which may be another
            in the cell's configuration.
    """

    scenario: str
    method: str
    variant: str
    seed: int
    cell: str
    backbone: str
    dataset: str
    profile: str
    shared: dict | None = None
    candidate: int | None = None
    ignored: dict | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """All that it says."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def key(self) -> Key:
        return self.scenario, self.method, self.variant, self.seed, self.candidate

    def seen(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """The cell's manifest with the configuration that this name's scenario has."""
        if not (ignored := manifest.get("ignored")):
            return manifest
        read = {part: value for part, value in manifest["config"].items() if part not in ignored}
        return {**manifest, "config": {**read, **(self.ignored or {})}}

    @property
    def title(self) -> str:
        """What a person calls it: scenario, method, variant if any, candidate if it is one, seed."""
        candidate = "" if self.candidate is None else f"candidate {self.candidate}"
        return " · ".join(filter(None, (self.scenario, self.method, self.variant, candidate, f"seed {self.seed}")))


@dataclass(frozen=True)
class Packed:
    """A table file of a suite: its name in the suite's folder, its size in bytes and its SHA-256."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Index:
    """What an index says.

    Attributes:
        suite: its name.
        entries: in the order of the suite.
        tables: the files of packed cells, by kind: `cells`, and those of `columns.COLUMNS`.
        searches: of a tuning, see `fedbench.results.tuning`.
        expected: a paper's numbers, see `Expected`.
        seeds: those that the suite had when it was first run; none in older results.
    """

    suite: str
    entries: Sequence[Entry] = ()
    tables: Mapping[str, Packed] = field(default_factory=dict)
    searches: Sequence[Mapping[str, Any]] = ()
    expected: Sequence[Mapping[str, Any]] = ()
    seeds: Sequence[int] = ()

    def to_json(self) -> dict[str, Any]:
        """What is written."""
        return {
            "suite": self.suite,
            "entries": [entry.facts for entry in self.entries],
            "searches": list(self.searches),
            "expected": list(self.expected),
            "tables": {kind: vars(table) for kind, table in self.tables.items()},
            **({"seeds": list(self.seeds)} if self.seeds else {}),
        }


def read_index(suite_folder: Path) -> Index | None:
    """The index of a suite folder, or None where there is none.

    Raises:
        UserError: where it cannot be used, or is not as it was written.
    """
    path = Path(suite_folder) / INDEX
    if not path.is_file():
        return None
    value = read_sealed(path, ("suite", "entries"), MEND)
    try:
        index = _checked(value)
        check("suite", index.suite, str)
    except (TypeError, AttributeError, KeyError) as error:
        raise UserError(f"{path}: not an index of fedbench ({error}).\n{MEND}") from error
    names = [index.suite, *(e.cell for e in index.entries), *(table.file for table in index.tables.values())]
    if odd := [name for name in names if not is_folder_name(name)]:  # all that becomes part of a path
        raise UserError(f"{path}: {odd[0]!r:.80} is not the name of a cell, a table or a suite.\n{MEND}")
    if twice := [entry for entry, n in Counter(entry.key for entry in index.entries).items() if n > 1]:
        raise UserError(f"{path}: two entries have the name {' · '.join(map(str, twice[0][:4]))}.\n{MEND}")
    return index


def _checked(value: dict[str, Any]) -> Index:
    """An index from its JSON value. Raises: TypeError, AttributeError for what is none."""
    for name, wanted in {"entries": list, "searches": list, "expected": list, "tables": dict}.items():
        check(name, value[name], wanted)
    entries = [typed(Entry, entry) for entry in value["entries"]]
    tables = {kind: typed(Packed, table) for kind, table in value["tables"].items() if kind not in DROPPED}
    if unknown := tables.keys() - {CELLS, *COLUMNS}:
        raise TypeError(f"{min(unknown)!r:.80} is no table of cells")
    check("seeds", seeds := value.get("seeds", []), list)
    for seed in seeds:
        check("seeds", seed, int)
    return Index(value["suite"], entries, tables, value["searches"], value["expected"], seeds)


def change_index(suite_folder: Path, suite: str, change: Callable[[Index], Index]) -> Index:
    """Replace an index by what `change` makes of it; one without entries where there was none.

    The caller holds the `suite_lock`, as of every function that writes an index.
    """
    folder = Path(suite_folder)
    return commit(folder, change(read_index(folder) or Index(suite)))


def commit(folder: Path, index: Index) -> Index:
    """Write an index, which is what readers go by."""
    write_json(folder / INDEX, index.to_json())
    return index


def merge_index(
    suite_folder: Path, suite: str, entries: Iterable[Entry | Mapping[str, Any]], seeds: Sequence[int] = ()
) -> Index:
    """Put entries into index.json, replacing those of the same key; returns the merged index.

    seeds: of the first run, which a folder without entries keeps.

    A new entry is placed behind its predecessor in `entries`, so that a run of one method leaves the suite's
    order alone.
    """
    prepare_folder(suite_folder)
    new = [entry if isinstance(entry, Entry) else Entry(**entry) for entry in entries]

    def change(old: Index) -> Index:
        kept = old.seeds if old.entries else seeds
        return replace(old, suite=suite, entries=merged_entries(old.entries, new), seeds=kept)

    return change_index(suite_folder, suite, change)


def merged_entries(old: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """Entries with others put in, those of one key in place of it; a new one comes behind its predecessor in `new`."""
    entries = {entry.key: entry for entry in (*old, *new)}
    known = dict.fromkeys(entry.key for entry in old)
    fresh = list(dict.fromkeys(entry.key for entry in new))
    # What comes before the first known one goes before it; all others go behind the one before them.
    first = next((key for key in fresh if key in known), None)
    ahead: list[Key] = []
    behind: dict[Key, list[Key]] = {key: [] for key in known}
    group = ahead
    for key in fresh:
        if key in known:
            group = behind[key]
        else:
            group.append(key)
    keys: list[Key] = []
    for key in known:
        keys += [*(ahead if key == first else ()), key, *behind[key]]
    return [entries[key] for key in (keys if first else [*keys, *ahead])]


def prepare_folder(suite_folder: Path) -> None:
    """Make the folder of a suite, or refuse it before anything is computed.

    Raises: UserError where it cannot be written to, holds a torn or newer index, or is full of files while
    nothing in it was written by fedbench.
    """
    folder = Path(suite_folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise cannot_write(folder, error) from error
    names = visible(folder)
    if names and names != [CELLS] and INDEX not in names:  # a run that was killed before its first index leaves cells
        raise UserError(
            f"{folder}: holds files that fedbench did not write ({shortened(names, SOME)}) and no {INDEX}.\n"
            "Nothing was changed. Choose another folder with --results DIR, or empty this one."
        )
    read_index(folder)


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))


@dataclass(frozen=True)
class Expected:
    """One number of a paper. metric: a domain, or "average" · value_percent and std: as printed, in percent.

    Attributes:
        variant: the sweep point, without what overlay and command line add to it.
        score: the metric that is printed.
        rounds: after how many, None where the suite does not say.
    """

    scenario: str
    variant: str
    dataset: str
    backbone: str
    method: str
    metric: str
    value_percent: float
    std: float | None = None
    rounds: int | None = None
    source: str = ""
    score: str = "accuracy"


def write_expected(suite_folder: Path, suite: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """All numbers of a suite, in place of those that were there."""
    found = [dict(row) for row in rows]
    old = read_index(suite_folder)
    if found != list(old.expected if old else ()):
        change_index(suite_folder, suite, lambda index: replace(index, expected=found))


def read_expected(suite_folder: Path) -> list[Expected]:
    """What `write_expected` wrote. Raises: UserError where it cannot be used."""
    index = read_index(suite_folder)
    return expected_of(index, Path(suite_folder)) if index else []


def expected_of(index: Index, folder: Path) -> list[Expected]:
    """The numbers of an index that was read from this folder. Raises: UserError where one is none of fedbench."""
    try:
        return [typed(Expected, row) for row in index.expected]
    except TypeError as error:
        raise UserError(f"{folder / INDEX}: an expected number is not one of fedbench ({error}).\n{MEND}") from error
