"""What a run has still to compute, while other runs on the folder may be at the same cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedbench.errors import UserError
from fedbench.results import read_manifest
from fedbench.results.claims import Claim, Claims
from fedbench.results.identity import id_in
from fedbench.results.status import ENDED
from fedbench.runs.plan import Cell
from fedbench.runs.twins import FAR, Kin

Take = Callable[[Path, Cell, Path], Mapping[str, Any]]

POLL = 0.5  # seconds between two looks at cells that other runs have


class Backlog:
    """The cells of a run that nobody has computed yet.

    before: what was on disk of each cell (id -> manifest, or None) when the run found that it has to compute it ·
    claims: of this run, entered · tell: takes the event `elsewhere` (`folder`, `status`, `reason`) for every cell that
    another run has computed, `twin` (the same, and `of`) for one that was written down from an equal one, `unclaimed`
    (`folder`, `status`, `reason`) for one that fails because its claim cannot be written, and `waiting` (`cells`,
    `holders`) when nothing is left but cells that others have · kin: by id, see `runs.twins` · take(folder, cell,
    place): writes a cell down from a twin in a folder, and returns its manifest; see `runs.taking`.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        before: Mapping[str, dict[str, Any] | None],
        suite_folder: Path,
        claims: Claims,
        tell: Callable[[dict[str, Any]], Any],
        kin: Mapping[str, Kin] = MappingProxyType({}),
        take: Take | None = None,
    ) -> None:
        self.kin, self.take = kin, take
        self.folder, self.before, self.claims, self.tell = suite_folder, before, claims, tell
        self.left = {cell.id: cell for cell in cells}
        self.handed: dict[str, Cell] = {}
        self.asked = 0  # how often somebody began to ask for cells

    def wait(self) -> bool:
        """Wait until a cell can be claimed; False when there is none to wait for. Asked while nobody is at work: what
        was handed out and has not ended is lost."""
        self.handed.clear()
        told: set[str] = set()
        while self.left:
            holders = set()
            for cell in list(self.left.values()):
                if cell.id not in self.left or self._taken(cell) or self._awaits(cell):
                    continue
                if holder := self.claims.holder(cell.id):
                    holders.add(holder)
                elif not self._done_elsewhere(cell):
                    return True
            if holders - told:
                self.tell({"event": "waiting", "cells": len(self.left), "holders": sorted(holders)})
                told |= holders
            if self.left:
                time.sleep(POLL)
        return False

    def claimed(self) -> Iterator[tuple[Cell, Claim]]:
        """Every cell that no other run has, claimed when it is asked for."""
        self.asked += 1
        for cell in list(self.left.values()):
            if cell.id not in self.left or self._taken(cell) or self._awaits(cell):
                continue
            try:
                claim = self.claims.take(cell.id)
            except UserError as error:  # the disk is full, say; those that are at work may have room yet
                del self.left[cell.id]
                place, end = str(cell.folder_in(self.folder)), {"status": "failed", "reason": str(error)}
                self.tell({"event": "unclaimed", "folder": place, **end})
                continue
            if claim is None:
                continue
            if self._done_elsewhere(cell):
                self.claims.release(cell.id)
                continue
            self.handed[cell.id] = self.left.pop(cell.id)
            yield cell, claim

    def is_out(self, folder: str) -> bool:
        """Whether a cell was handed out, and has not ended yet."""
        return id_in(Path(folder).name) in self.handed

    def ended(self, folder: str) -> bool:
        """Give back the claim of a cell that has ended; False where another run took it over, which is then left."""
        id = id_in(Path(folder).name)
        cell = self.handed.pop(id)
        if self.claims.release(id):
            return True
        self.left[id] = cell
        return False

    def done(self, event: Mapping[str, Any]) -> None:
        """Write down the twins of a cell that has ended, where it has a result."""
        kin = self.kin.get(id_in(Path(event["folder"]).name))
        if kin is None or event["status"] not in FAR:
            return
        kin.done.append(Path(event["folder"]))
        for cell in kin.cells:
            if cell.id in self.left:
                self._taken(cell)

    def _awaits(self, cell: Cell) -> bool:
        """Whether a twin of the cell is to be computed first."""
        kin = self.kin.get(cell.id)
        if kin is None:
            return False
        first = kin.first(
            lambda one: one.id in self.handed or self.claims.holder(one.id) is not None,
            lambda one: one.id in self.left or one.id in self.handed,
        )
        return first is not None and first.id != cell.id

    def _taken(self, cell: Cell) -> bool:
        """Write a cell down from a twin that has a result; whether that, or another run, has done it."""
        kin = self.kin.get(cell.id)
        while kin and kin.done and self.take:
            place = cell.folder_in(self.folder)
            try:
                if self.claims.take(cell.id) is None:
                    return False
                try:
                    if self._done_elsewhere(cell):
                        return True
                    manifest = self.take(kin.done[0], cell, place)
                finally:
                    self.claims.release(cell.id)
            except (
                UserError
            ):  # it is not whole any more, or cannot be copied: the cell is computed, or fails, for itself
                kin.done.pop(0)
                continue
            del self.left[cell.id]
            told = {"status": manifest["status"], "reason": manifest["reason"], "of": manifest["computed_as"]}
            self.tell({"event": "twin", "folder": str(place), **told})
            return True
        return False

    def _done_elsewhere(self, cell: Cell) -> bool:
        """Whether a cell has ended in another run since this one began: also one that is run again."""
        place = cell.folder_in(self.folder)
        manifest = read_manifest(place)
        if manifest is None or manifest["status"] not in ENDED or manifest == self.before[cell.id]:
            return False
        del self.left[cell.id]
        told = {"folder": str(place), "status": manifest["status"], "reason": manifest["reason"]}
        self.tell({"event": "elsewhere", **told})
        self.done(told)
        return True
