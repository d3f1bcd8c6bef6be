"""What a run has still to compute, while other runs on the folder may be at the same cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results import read_manifest
from fedbench.results.claims import Claim, Claims
from fedbench.results.identity import id_in
from fedbench.results.status import ENDED
from fedbench.runs.plan import Cell

POLL = 0.5  # seconds between two looks at cells that other runs have


class Backlog:
    """The cells of a run that nobody has computed yet.

    before: what was on disk of each cell (id -> manifest, or None) when the run found that it has to compute it ·
    claims: of this run, entered · tell: takes the event `elsewhere` (`folder`, `status`, `reason`) for every cell that
    another run has computed, `unclaimed` (the same) for one that fails because its claim cannot be written, and
    `waiting` (`cells`, `holders`) when nothing is left but cells that others have.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        before: Mapping[str, dict[str, Any] | None],
        suite_folder: Path,
        claims: Claims,
        tell: Callable[[dict[str, Any]], Any],
    ) -> None:
        self.folder, self.before, self.claims, self.tell = suite_folder, before, claims, tell
        self.left = {cell.id: cell for cell in cells}
        self.handed: dict[str, Cell] = {}
        self.asked = 0  # how often somebody began to ask for cells

    def wait(self) -> bool:
        """Wait until a cell can be claimed; False when there is none to wait for."""
        told: set[str] = set()
        while self.left:
            holders = set()
            for cell in list(self.left.values()):
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

    def _done_elsewhere(self, cell: Cell) -> bool:
        """Whether a cell has ended in another run since this one began: also one that is run again."""
        place = cell.folder_in(self.folder)
        manifest = read_manifest(place)
        if manifest is None or manifest["status"] not in ENDED or manifest == self.before[cell.id]:
            return False
        del self.left[cell.id]
        told = {"status": manifest["status"], "reason": manifest["reason"]}
        self.tell({"event": "elsewhere", "folder": str(place), **told})
        return True
