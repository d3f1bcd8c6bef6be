"""How far a run is, from what it is told: cells, rounds, scores so far, images a second; written down for `top`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.results.identity import id_in
from fedbench.results.live import SUFFIX
from fedbench.results.processes import is_gone, this_process
from fedbench.runs.outcome import Listen
from fedbench.runs.plan import Cell

OFTEN = 1.0  # seconds between two writes, at least


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

    def __init__(self, cells: Mapping[str, tuple[str, int]], kept: int = 0, awaiting: Iterable[str] = ()) -> None:
        """cells: those to compute, title and rounds by the end of the folder's name; kept: how many are done ·
        awaiting: which of the cells are to be written down from others, and take no rounds."""
        self.cells, self.kept, self.awaiting = cells, kept, set(awaiting)
        self.at: dict[str, Running] = {}
        self.ended: dict[str, int] = {}  # by status
        self.before = 0  # rounds of cells that have ended
        self.images = 0
        self.began = time.monotonic()

    def note(self, event: Mapping[str, Any]) -> None:
        folder, now = event.get("folder", ""), time.monotonic()
        if event["event"] == "started":
            self.awaiting.discard(id := id_in(Path(folder).name))  # it is computed after all
            title, rounds = self.cells[id]
            self.at[folder] = Running(title, rounds, now)
        elif event["event"] == "resumed" and folder in self.at:
            self.at[folder].round = self.at[folder].first = event["round"]
        elif event["event"] == "round" and folder in self.at:
            self.at[folder].advance(event, now)
            self.images += event.get("images", 0)
        elif event["event"] == "twin":
            self.awaiting.add(id_in(Path(folder).name))
            self.ended[event["status"]] = self.ended.get(event["status"], 0) + 1
        elif event["event"] in ("ended", "elsewhere", "unclaimed"):
            self.awaiting.discard(id_in(Path(folder).name))
            one = self.at.pop(folder, None)
            if event["status"] != "taken":
                self.ended[event["status"]] = self.ended.get(event["status"], 0) + 1
                self.before += one.rounds if one else self.cells[id_in(Path(folder).name)][1]

    @property
    def rounds(self) -> int:
        """Of all cells that are computed."""
        return sum(rounds for id, (_, rounds) in self.cells.items() if id not in self.awaiting)

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

    def to_json(self) -> dict[str, Any]:
        """What is written down."""
        own = {name: getattr(self, name) for name in ("kept", "rounds", "done", "rate", "left")}
        now = time.monotonic()
        cells = [asdict(one) | {"began": round(now - one.began, 1)} for one in self.at.values()]
        return {**own, "cells": len(self.cells), "ended": dict(self.ended), "at": cells}


def pace_of(missing: Sequence[Cell], kept: int) -> Pace:
    """The pace of a run that is to compute these cells."""
    awaiting = [cell.id for cell in missing if cell.awaits]
    return Pace({cell.id: (cell.title, cell.rounds) for cell in missing}, kept, awaiting)


class Written:
    """A listener that keeps the pace of a run in a hidden file, at most once a second, and passes events on.

    A context manager; the file goes at its end, and so do those of runs that were killed here. That it cannot be
    written stops no run.
    """

    def __init__(self, folder: Path, suite: str, missing: Sequence[Cell], kept: int, listen: Listen) -> None:
        self.pace = pace_of(missing, kept)
        self.process, self.suite, self.listen = this_process(), suite, listen
        self.file = folder / f".{self.process['host']}-{self.process['pid']}{SUFFIX}"
        self.last = 0.0

    def __enter__(self) -> Listen:
        for file in self.file.parent.glob(f".*{SUFFIX}"):
            with suppress(OSError, ValueError, AttributeError):
                if is_gone(json.loads(file.read_text())["process"]):
                    file.unlink()
        return self.note

    def __exit__(self, *_: Any) -> None:
        with suppress(OSError):
            self.file.unlink(missing_ok=True)

    def note(self, event: dict[str, Any]) -> None:
        with suppress(KeyError):  # an executor of somebody's tells what it likes
            self.pace.note(event)
        if (now := time.monotonic()) - self.last >= OFTEN:
            self.last = now
            content = {"process": self.process, "suite": self.suite, **self.pace.to_json()}
            with suppress(UserError, OSError):
                write_atomically(self.file, json.dumps(content).encode(), lasting=False)
        self.listen(event)
