"""How far a run is, from what it is told: cells, rounds, scores so far, images a second."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.results.identity import id_in
from fedbench.runner.cells import Cell


@dataclass
class Running:
    """A cell at work. round: of how many it is done · score: the last test score of the metric, a mean over domains ·
    images: trained on since `began`, by all clients · rate: images a second · left: seconds, None where nobody knows.
    """

    title: str
    rounds: int
    began: float
    round: int = 0
    metric: str = ""
    score: float | None = None
    images: int = 0
    rate: float | None = None
    left: float | None = None
    first: int = 0  # the round that it began with, which is none of its doing

    def advance(self, event: Mapping[str, Any], now: float) -> None:
        """A round is done."""
        self.round = event["round"]
        self.images += event.get("images", 0)
        if "score" in event:
            self.metric, self.score = event["metric"], event["score"]
        took, done = now - self.began, self.round - self.first
        if took > 0 and done > 0:
            self.rate = self.images / took if self.images else None
            self.left = took / done * (self.rounds - self.round)


class Pace:
    """Of a run: `note` is told its events. A cell that goes on from its checkpoint is measured from there on."""

    def __init__(self, cells: Mapping[str, tuple[str, int]], kept: int = 0) -> None:
        """cells: those to compute, title and rounds by the end of the folder's name; kept: how many are done."""
        self.cells, self.kept = cells, kept
        self.at: dict[str, Running] = {}
        self.ended: dict[str, int] = {}  # by status
        self.before = 0  # rounds of cells that have ended
        self.images = 0
        self.began = time.monotonic()

    def note(self, event: Mapping[str, Any]) -> None:
        folder, now = event.get("folder", ""), time.monotonic()
        if event["event"] == "started":
            title, rounds = self.cells[id_in(Path(folder).name)]
            self.at[folder] = Running(title, rounds, now)
        elif event["event"] == "resumed" and folder in self.at:
            self.at[folder].round = self.at[folder].first = event["round"]
        elif event["event"] == "round" and folder in self.at:
            self.at[folder].advance(event, now)
            self.images += event.get("images", 0)
        elif event["event"] in ("ended", "elsewhere"):
            one = self.at.pop(folder, None)
            if event["status"] != "taken":
                self.ended[event["status"]] = self.ended.get(event["status"], 0) + 1
                self.before += one.rounds if one else self.cells[id_in(Path(folder).name)][1]

    @property
    def rounds(self) -> int:
        """Of all cells that are computed."""
        return sum(rounds for _, rounds in self.cells.values())

    @property
    def done(self) -> int:
        """Rounds done; those of ended cells count whole, however they ended."""
        return self.before + sum(one.round for one in self.at.values())

    @property
    def rate(self) -> float | None:
        """Images a second of all cells since the run began."""
        took = time.monotonic() - self.began
        return self.images / took if self.images and took > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds, as if what is left took as long a round as what was computed since the run began."""
        fresh = self.done - sum(one.first for one in self.at.values())
        return (time.monotonic() - self.began) / fresh * (self.rounds - self.done) if fresh > 0 else None


def pace_of(missing: Sequence[Cell], kept: int) -> Pace:
    """The pace of a run that is to compute these cells."""
    return Pace({cell.id: (cell.title, cell.rounds) for cell in missing}, kept)
