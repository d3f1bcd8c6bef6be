"""index.json: which names (scenario, method, variant, seed) point to which cell folder of a suite."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.disk import cannot_write, hash_of_json
from fedbench.errors import UserError
from fedbench.results.documents import locked, read_json, unsealed, write_json
from fedbench.results.manifest import MANIFEST
from fedbench.results.untrusted import is_folder_name, typed
from fedbench.words import shortened

INDEX = "index.json"
SOME = 5  # names of files that are none of fedbench's, in a message
Key = tuple[str, str, str, int, int | None]  # scenario, method, variant, seed, candidate
MARK = "mark"  # of an entry, in the file
UNSEALED = ("result_version", "suite", "entries")  # what there is in an index of an older fedbench, without seals
ALTERED, TWICE = "this entry was changed since it was written", "two entries have this name"
MAKE_SOME = "`fedbench run SUITE.yaml` makes results (in results/ unless --results says otherwise)."
MEND = f"Delete it and run the whole suite again: finished cells are kept, and named there again.\n{MAKE_SOME}"


@dataclass(frozen=True)
class Entry:
    """One name under which a cell appears. Several entries may point to one cell folder.

    shared: of a method that brings settings of its own, what its suite gives all others in place of those sections:
    what it has itself stands in the cell's configuration · candidate: of a tuning, the number of the one that this
    cell tries; None for a cell that reports.
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

    @property
    def facts(self) -> dict[str, Any]:
        """All that it says."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def mark(self, suite: str) -> str:
        """12 hex digits over all that it says, in a suite of that name."""
        return hash_of_json([suite, self.facts])[:12]

    @property
    def key(self) -> Key:
        return self.scenario, self.method, self.variant, self.seed, self.candidate

    @property
    def title(self) -> str:
        """What a person calls it: scenario, method, variant if any, candidate if it is one, seed."""
        candidate = "" if self.candidate is None else f"candidate {self.candidate}"
        return " · ".join(filter(None, (self.scenario, self.method, self.variant, candidate, f"seed {self.seed}")))


@dataclass(frozen=True)
class Index:
    """A suite's name and its entries, in the order of the suite.

    wrong: what of that cannot be believed, by the entry's key · torn: what is wrong beside that with the file, or "" ·
    marked: whether every entry has a seal, so that its names mean its cell; those of an older fedbench have none.
    """

    suite: str
    entries: Sequence[Entry]
    wrong: Mapping[tuple, str] = field(default_factory=dict)
    torn: str = ""
    marked: bool = True


def read_index(suite_folder: Path) -> Index | None:
    """The index of a suite folder, or None where there is none. Raises: UserError where it cannot be used, or is not as
    it was written."""
    path, found = Path(suite_folder) / INDEX, look_at_index(suite_folder)
    if found is None or not (found.wrong or found.torn):
        return found
    which = {entry.key: entry.title for entry in found.entries}
    told = [f"{which[key]}: {wrong}" for key, wrong in found.wrong.items()] or [found.torn]
    raise UserError(f"{path}: {shortened(told, SOME)}.\n{MEND}")


def look_at_index(suite_folder: Path) -> Index | None:
    """The index of a suite folder with what is wrong with its entries, or None where there is none. Raises: UserError
    where it cannot be used at all."""
    path = Path(suite_folder) / INDEX
    if not path.is_file():
        return None
    value = read_json(path, UNSEALED, MEND)
    torn = unsealed(value, UNSEALED)
    suite = value["suite"]
    if not isinstance(suite, str):
        raise UserError(f"{path}: its suite is no text.\n{MEND}")
    try:
        marks = [entry.pop(MARK, None) for entry in value["entries"]]
        entries = [typed(Entry, entry) for entry in value["entries"]]
    except (TypeError, AttributeError) as error:
        raise UserError(f"{path}: an entry is not one of fedbench ({error}).\n{MEND}") from error
    if odd := [entry.cell for entry in entries if not is_folder_name(entry.cell)]:
        raise UserError(f"{path}: {odd[0]!r:.80} is not the name of a cell's folder beside it.\n{MEND}")
    if torn and not any(marks):
        raise UserError(f"{path}: {torn}.\n{MEND}")
    return Index(suite, entries, _wrong(suite, entries, marks), torn or "", any(marks))


def _wrong(suite: str, entries: Sequence[Entry], marks: Sequence[Any]) -> dict[tuple, str]:
    """What is wrong with entries by themselves, by key: their marks, where there are any, and names told twice."""
    marked = any(marks)
    altered = {e.key: ALTERED for e, mark in zip(entries, marks, strict=True) if marked and mark != e.mark(suite)}
    return altered | {key: TWICE for key, n in Counter(entry.key for entry in entries).items() if n > 1}


def merge_index(suite_folder: Path, suite: str, entries: Iterable[Entry | Mapping[str, Any]]) -> Index:
    """Put entries into index.json under a lock, replacing those of the same key; returns the merged index.

    A new entry is placed behind its predecessor in `entries`, so that a run of one method leaves the suite's
    order alone.
    """
    folder = Path(suite_folder)
    new = [entry if isinstance(entry, Entry) else Entry(**entry) for entry in entries]
    prepare_folder(folder)
    with locked(folder / INDEX):
        old = read_index(folder)
        merged = Index(suite, _merge(old.entries if old else (), new))
        marked = [{**entry.facts, MARK: entry.mark(suite)} for entry in merged.entries]
        write_json(folder / INDEX, {"suite": suite, "entries": marked})
    return merged


def _merge(old: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
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
    if names and INDEX not in names and not any(_cell_or_empty(folder / name) for name in names):
        raise UserError(
            f"{folder}: holds files that fedbench did not write ({shortened(names, SOME)}) and no {INDEX}.\n"
            "Nothing was changed. Choose another folder with --results DIR, or empty this one."
        )
    read_index(folder)


def _cell_or_empty(path: Path) -> bool:
    """A run that was killed before its first index leaves cell folders, perhaps still empty."""
    return path.is_dir() and ((path / MANIFEST).is_file() or not visible(path))


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
