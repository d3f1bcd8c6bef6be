"""A suite that is tuned before it reports: candidates rung by rung, then the winners on the reporting seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fedbench.errors import UserError
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results.columns import ENDED, HALVED
from fedbench.results.manifest import believed_manifest
from fedbench.results.pack import pack
from fedbench.results.tuning import Contest, Key, Search, rungs_of
from fedbench.runner.cells import Cell, Options, cells_of, status
from fedbench.runner.progress import RunSummary
from fedbench.simulation.checkpoint import forget
from fedbench.suite import Point, Suite


@dataclass(frozen=True)
class Tried:
    """The candidates' cells of one method in one scenario at one place of the sweep.

    cells: by candidate, one for each seed · folder: of the suite's results.
    """

    key: Key
    rungs: tuple[int, ...]
    cells: dict[int, list[Cell]]
    folder: Path
    metric: str

    @property
    def every(self) -> list[Cell]:
        """All of its cells; equal ones as often as there are candidates that are equal."""
        return [cell for cells in self.cells.values() for cell in cells]

    @property
    def share(self) -> float:
        """Which part of all rounds of all candidates is computed, where none fails."""
        alive, before, rounds = len(self.cells), 0, 0
        for t in self.rungs:
            rounds += alive * (t - before)
            alive, before = math.ceil(alive / 2), t
        return rounds / (len(self.cells) * self.rungs[-1])

    @property
    def contest(self) -> Contest:
        """As it stands on disk now."""
        cells = {k: [cell.folder_in(self.folder) for cell in own] for k, own in self.cells.items()}
        return Contest(self.key, self.metric, self.rungs, cells)

    def entrants(self, rung: int) -> list[Cell]:
        """The cells that are to reach a rung, each with the round at which it ends for now."""
        alive = self.contest.entrants(rung)
        return [replace(cell, until=self.rungs[rung]) for k in alive for cell in self.cells[k]]


def tried(suite: Suite, points: Sequence[Point], registry: Registry, assets: Assets, suite_folder: Path) -> list[Tried]:
    """The contests of a suite that is to be tuned; points: of its candidates. A method that is not `tunable` tries the
    first alone."""
    assert (tuning := suite.tuning) is not None
    points = [
        point
        for point in points
        if not point.candidate or registry.catalogue.find("method", point.config["method"]["name"]).tunable
    ]
    found: dict[Key, dict[int, list[Cell]]] = {}
    for cell in cells_of(points, registry, assets):
        for point in cell.points:
            assert point.candidate is not None
            key = (point.scenario, point.variant, point.method)
            found.setdefault(key, {}).setdefault(point.candidate, []).append(cell)
    rungs = {key: rungs_of(cells[min(cells)][0].config, tuning.halving) for key, cells in found.items()}
    return [
        Tried(key, rungs[key], dict(sorted(cells.items())), suite_folder, tuning.metric) for key, cells in found.items()
    ]


def searches_of(suite: Suite, cells: Sequence[Cell]) -> dict[Key, Search]:
    """What is kept with these cells: of each contest that one of them is a candidate of, what it was drawn in."""
    if (tuning := suite.tuning) is None:
        return {}
    values = [candidate.values for candidate in tuning.candidates]
    search = Search(tuning.space, values, list(tuning.seeds), tuning.metric, list(tuning.halving))
    points = (point for cell in cells for point in cell.points if point.candidate is not None)
    return {(point.scenario, point.variant, point.method): search for point in points}


def standing(contests: Sequence[Tried]) -> dict[Key, int]:
    """Who would win each contest by what is on disk; the first candidate where nothing is known yet."""
    return {one.key: one.contest.winner or 0 for one in contests}


def decided(contests: Sequence[Tried]) -> dict[Key, int]:
    """The winners of the contests that are over: all that were to come to a rung have come to it, or failed."""
    found = {}
    for one in contests:
        entrants = (cell for rung in range(len(one.rungs)) for cell in one.entrants(rung))
        winner = one.contest.winner
        if winner is not None and all(_status(cell, one.folder) in ENDED for cell in entrants):
            found[one.key] = winner
    return found


def decide(
    contests: Sequence[Tried], options: Options, compute: Callable[[list[Cell], Options, str], RunSummary]
) -> dict[Key, int] | None:
    """Have every contest's candidates computed, rung by rung; its winner by its key, where it has one. None where cells
    of a rung are left.

    compute(cells, options, stage): computes those cells that are not there yet.
    """
    most = max((len(one.rungs) for one in contests), default=0)
    for rung in range(most):
        for attempt in range(2):  # another run on the folder may have left some where they were
            there = [one for one in contests if rung < len(one.rungs)]
            alive = [cell for one in there for cell in one.entrants(rung)]
            cells = list({cell.id: cell for cell in alive}.values())
            again = replace(options, force=options.force and rung == attempt == 0)
            outcome = compute(cells, again, f"tuning, part {rung + 1} of {most}")
            if not outcome.left:
                break
            if attempt or outcome.gave_up or outcome.unended:
                return None
    winners = {one.key: one.contest.winner for one in contests}
    return {key: k for key, k in winners.items() if k is not None}


def leave(contests: Sequence[Tried], suite_folder: Path) -> None:
    """Delete the checkpoints of candidates that were halved, and pack them: who wins is known, and these can only start
    again."""
    for one in contests:
        for cell in one.every:
            folder = cell.folder_in(suite_folder)
            if (manifest := believed_manifest(folder)) is not None and manifest["status"] == HALVED:
                forget(folder)
    with suppress(UserError):  # as at the end of a run
        pack(suite_folder)


def _status(cell: Cell, suite_folder: Path) -> str:
    folder = cell.folder_in(suite_folder)
    return status(cell, folder, believed_manifest(folder))
