"""What a run has still to compute, while other runs on the folder may be at the same cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results import read_manifest
from fedbench.results.claims import Claim, Claims
from fedbench.results.tables import ENDED
from fedbench.runs.plan import Work

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
        works: Iterable[Work],
        before: Mapping[str, dict[str, Any] | None],
        suite_folder: Path,
        claims: Claims,
        tell: Callable[[dict[str, Any]], Any],
    ) -> None:
        self.folder, self.before, self.claims, self.tell = suite_folder, before, claims, tell
        self.left = {work.id: work for work in works}
        self.handed: dict[str, Work] = {}
        self.asked = 0  # how often somebody began to ask for cells

    def wait(self) -> bool:
        """Wait until a cell can be claimed; False when there is none to wait for."""
        told: set[str] = set()
        while self.left:
            holders = set()
            for work in list(self.left.values()):
                if holder := self.claims.holder(work.id):
                    holders.add(holder)
                elif not self._done_elsewhere(work):
                    return True
            if holders - told:
                self.tell({"event": "waiting", "cells": len(self.left), "holders": sorted(holders)})
                told |= holders
            if self.left:
                time.sleep(POLL)
        return False

    def claimed(self) -> Iterator[tuple[Work, Claim]]:
        """Every cell that no other run has, claimed when it is asked for."""
        self.asked += 1
        for work in list(self.left.values()):
            try:
                claim = self.claims.take(work.id)
            except UserError as error:  # the disk is full, say; those that are at work may have room yet
                del self.left[work.id]
                place, end = str(work.folder_in(self.folder)), {"status": "failed", "reason": str(error)}
                self.tell({"event": "unclaimed", "folder": place, **end})
                continue
            if claim is None:
                continue
            if self._done_elsewhere(work):
                self.claims.release(work.id)
                continue
            self.handed[work.id] = self.left.pop(work.id)
            yield work, claim

    def is_out(self, folder: str) -> bool:
        """Whether a cell was handed out, and has not ended yet."""
        return _id(folder) in self.handed

    def ended(self, folder: str) -> bool:
        """Give back the claim of a cell that has ended; False where another run took it over, which is then left."""
        id = _id(folder)
        work = self.handed.pop(id)
        if self.claims.release(id):
            return True
        self.left[id] = work
        return False

    def _done_elsewhere(self, work: Work) -> bool:
        """Whether a cell has ended in another run since this one began: also one that is run again."""
        place = work.folder_in(self.folder)
        manifest = read_manifest(place)
        if manifest is None or manifest["status"] not in ENDED or manifest == self.before[work.id]:
            return False
        del self.left[work.id]
        told = {"status": manifest["status"], "reason": manifest["reason"]}
        self.tell({"event": "elsewhere", "folder": str(place), **told})
        return True


def _id(folder: str) -> str:
    return Path(folder).name.rpartition("-")[2]
