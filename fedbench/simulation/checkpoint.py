"""Checkpoints: a cell resumes after a kill at any instant, to the same bits."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.disk import cannot_write, hash_of_bytes, hash_of_file, hash_of_json, put_in_place, settle
from fedbench.errors import UserError
from fedbench.results import read_rows
from fedbench.results.columns import CAME_LATER, COLUMNS
from fedbench.results.documents import json_text, read_json
from fedbench.results.files import CHECKPOINT, set_aside
from fedbench.results.tables import table_bytes
from fedbench.simulation.state import ClientStore, file_bytes, keys_of, load, taken_apart

EVERY = 60.0  # seconds between two checkpoints, by default
FACTS = "checkpoint.json"
PLACES = ("a", "b")
FORMAT = 1
REQUIRED = ("format", "id", "device", "number", "round", "seconds", "off_cpu", "files", "sha256")
NEXT, OLD = ".next", ".old"  # a checkpoint being written, and one being deleted
GONE = ".checkpoint.gone"  # all of them, being deleted
CLIENTS = "clients"  # the tensors of clients that checkpoints refer to


@dataclass
class Progress:
    """How far a cell is: rounds done, the method's state after them, the rows of its tables so far, and the seconds
    it took."""

    round: int = 0
    state: dict[str, Any] | None = None
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {kind: [] for kind in COLUMNS})
    seconds: float = 0.0


class Checkpoints:
    """The checkpoints of one cell: two places, written in turn, so that one is whole whatever happens to the other.

    A checkpoint is a folder with the files of `fedbench.simulation.state`, the tables, and what says that they belong
    together: their hashes and its own, the cell's id, the kind of device, and a number that only grows. It is written
    next to the places, read back, and put into the older one's place. One process at a time may use a cell's folder.

    Clients' own tensors lie next to them, in `store`; a checkpoint names those that its state refers to.
    """

    def __init__(self, folder: Path, id: str, device: str, every: float = 0.0) -> None:
        """Of a cell, of which nothing is read yet.

        Args:
            id: the cell's, in which all is that can change a result.
            device: the kind it is computed on.
            every: seconds between two.
        """
        self.folder, self.id, self.device, self.every = folder / CHECKPOINT, id, device, every
        self.store = ClientStore(folder / CLIENTS)
        self.number, self.place = 0, ""  # of the last one that is whole
        self.written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self.written >= self.every

    def latest(self) -> tuple[Progress, list[str]]:
        """The newest whole checkpoint, or the start; and a line on each that is not whole or not of this cell, which
        is set aside. Raises UserError where the folder cannot be written to."""
        for leftover in (NEXT, OLD):
            shutil.rmtree(self.folder / leftover, ignore_errors=True)
        refused, found = [], []
        for place in PLACES:
            if os.path.lexists(self.folder / place):
                try:
                    found.append((self._facts(self.folder / place), place))
                except UserError as error:
                    refused.append(self._set_aside(place, error))
        progress = Progress()
        self.store.pinned = {place: frozenset(facts.get("clients", ())) for facts, place in found}
        for facts, place in sorted(found, key=lambda one: one[0]["number"], reverse=True):
            self.number = max(self.number, facts["number"])
            try:
                progress, self.place = self._read(self.folder / place, facts), place
                break
            except UserError as error:
                refused.append(self._set_aside(place, error))
                del self.store.pinned[place]
        self.store.sweep(progress.state or {}, torn=True)
        return progress, refused

    def write(self, progress: Progress) -> None:
        """Keep this progress, and the last one until this is known to be whole. Raises UserError for what is no
        state, or where it cannot be written."""
        contents = file_bytes(progress.state)
        contents |= {f"{kind}.parquet": table_bytes(kind, rows) for kind, rows in progress.tables.items()}
        tensors, _ = taken_apart(progress.state)
        place, clients = PLACES[self.place == PLACES[0]], keys_of(progress.state or {})
        facts: dict[str, Any] = {
            "format": FORMAT,
            "id": self.id,
            "device": self.device,
            "number": self.number + 1,
            "round": progress.round,
            "seconds": progress.seconds,
            "off_cpu": [name for name, tensor in tensors.items() if tensor.device.type != "cpu"],
            "files": {name: hash_of_bytes(content) for name, content in contents.items()},
        }
        if clients:
            facts["clients"] = sorted(clients)
        contents[FACTS] = json_text({**facts, "sha256": hash_of_json(facts)}).encode()
        self.store.settle()
        try:
            self._put(contents, self.folder / place)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        self.store.pinned[place] = frozenset(clients)
        self.store.sweep(progress.state or {})
        self.number, self.place, self.written = facts["number"], place, time.monotonic()

    def _put(self, contents: dict[str, bytes], place: Path) -> None:
        with put_in_place(place, self.folder / NEXT, self.folder / OLD) as new:
            for name, content in contents.items():
                (new / name).write_bytes(content)
                settle(new / name)
            _check(new, self._facts(new))

    def _facts(self, place: Path) -> dict[str, Any]:
        """What checkpoint.json says. Raises UserError where it is torn, foreign or of another cell."""
        path = place / FACTS
        facts = read_json(path, REQUIRED, "")
        own = facts.pop("sha256")
        del facts["result_version"]
        if facts["format"] != FORMAT:
            raise UserError(f"{path}: checkpoint format {facts['format']}, but this fedbench reads format {FORMAT}.")
        if own != hash_of_json(facts):
            raise UserError(f"{path}: torn (its hash is another).")
        for name, mine in (("id", self.id), ("device", self.device)):
            if facts[name] != mine:
                raise UserError(f"{path}: of another {name}, {facts[name]} and not {mine}.")
        return facts

    def _read(self, place: Path, facts: dict[str, Any]) -> Progress:
        _check(place, facts)
        self.store.check(facts.get("clients", ()))
        state = load(place, dict.fromkeys(facts["off_cpu"], self.device))
        known = [kind for kind in COLUMNS if kind not in CAME_LATER or f"{kind}.parquet" in facts["files"]]
        tables = Progress().tables | {kind: read_rows(place, kind) for kind in known}
        return Progress(facts["round"], state, tables, facts["seconds"])

    def _set_aside(self, place: str, error: UserError) -> str:
        kept = set_aside(self.folder / place, self.folder.parent)
        return f"{str(error).splitlines()[0]} Set aside as {kept.name}."


def forget(folder: Path) -> None:
    """Delete the checkpoints of a cell that is done, or that starts again, and the tensors of its clients: out of sight
    first, so that one killed at this leaves none that looks torn."""
    shutil.rmtree(folder / GONE, ignore_errors=True)
    with suppress(OSError):  # there may be none
        (folder / CHECKPOINT).rename(folder / GONE)
    for done in (GONE, CLIENTS):
        shutil.rmtree(folder / done, ignore_errors=True)


def _check(place: Path, facts: dict[str, Any]) -> None:
    """Raises UserError where a file is not the one that was written."""
    for name, expected in facts["files"].items():
        if not (place / name).is_file():
            raise UserError(f"{place / name}: missing.")
        if hash_of_file(place / name) != expected:
            raise UserError(f"{place / name}: torn (its hash is another).")
