"""The cells that a run has still to compute, while other runs on the folder may compute the same ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbench.results import read_manifest
from fedbench.results.columns import ENDED, TAKEN
from fedbench.results.identity import id_in
from fedbench.results.lock import is_held
from fedbench.results.manifest import computation
from fedbench.runner.cells import Cell

POLL = 0.5  # seconds between two looks at cells that other runs compute


class JobQueue:
    """The cells of a run that nobody has computed yet."""

    def __init__(
        self,
        cells: Iterable[Cell],
        before: Mapping[str, dict[str, Any] | None],
        suite_folder: Path,
        tell: Callable[[dict[str, Any]], Any],
    ) -> None:
        """Args:
        cells: to compute.
        before: by id, the manifest that was on disk when the run found that it has to compute the cell.
        suite_folder: where their folders are.
        tell: takes the event `elsewhere` (`folder`, `status`, `reason`) for every cell that another run has
            computed, and `waiting` (`cells`) once when nothing is left but cells that others compute.
        """
        self.folder, self.before, self.tell = suite_folder, before, tell
        self.left = {cell.id: cell for cell in cells}
        self.handed: dict[str, Cell] = {}
        self.asked = 0  # how often somebody began to ask for cells
        self.waiting = False

    def wait(self) -> bool:
        """Wait until a cell can be computed; False when there is none to wait for. Asked while nobody is at work: what
        was handed out and has not ended is lost."""
        self.handed.clear()
        while self.left:
            for cell in list(self.left.values()):
                if not self._is_done(cell) and not is_held(cell.folder_in(self.folder)):
                    return True
            if self.left and not self.waiting:
                self.waiting = True
                self.tell({"event": "waiting", "cells": len(self.left)})
            if self.left:
                time.sleep(POLL)
        return False

    def cells(self) -> Iterator[Cell]:
        """Every cell that no other run computes, handed out when it is asked for."""
        self.asked += 1
        for cell in list(self.left.values()):
            if cell.id not in self.left or self._is_done(cell) or is_held(cell.folder_in(self.folder)):
                continue
            self.handed[cell.id] = self.left.pop(cell.id)
            yield cell

    def ended(self, folder: str, status: str) -> bool:
        """Note the end of a cell. One that another run computes is left again. False where it was not handed out."""
        cell = self.handed.pop(id_in(Path(folder).name), None)
        if cell is not None and status == TAKEN:
            self.left[cell.id] = cell
        return cell is not None

    def _is_done(self, cell: Cell) -> bool:
        """Whether a cell has ended in another run since this one began: also one that is run again."""
        place = cell.folder_in(self.folder)
        manifest = read_manifest(place)
        if manifest is None or manifest["status"] not in ENDED:
            return False
        if computation(manifest) == computation(self.before[cell.id]):
            return False
        del self.left[cell.id]
        told = {"folder": str(place), "status": manifest["status"], "reason": manifest["reason"]}
        self.tell({"event": "elsewhere", **told})
        return True
