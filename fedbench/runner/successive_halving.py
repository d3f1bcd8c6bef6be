"""A suite that is tuned before it reports: candidates rung by rung, then the winners on the reporting seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results.columns import HALVED
from fedbench.results.manifest import believed_manifest
from fedbench.results.pack import pack
from fedbench.results.tuning import PAIR, Contest, Key, Search, rungs_of
from fedbench.runner.cells import Cell, Options, cells_of, status
from fedbench.runner.progress import RunSummary
from fedbench.simulation.checkpoint import forget
from fedbench.suite import Point, Suite
from fedbench.suite.points import Tuning


@dataclass(frozen=True)
class Tried:
    """The candidates' cells of one method in one scenario at one place of the sweep.

    cells: by candidate, by seed, also those that are run only where the rule of confirmation asks for them · folder: of
    the suite's results.
    """

    key: Key
    search: Search
    rungs: tuple[int, ...]
    cells: dict[int, dict[int, Cell]]
    folder: Path

    @property
    def every(self) -> list[Cell]:
        """The cells of all drawn candidates on the seeds of all; equal ones as often as there are equal candidates."""
        return [own[seed] for k, own in self.cells.items() if k < self.search.trials for seed in self.search.seeds]

    @property
    def share(self) -> float:
        """Which part of all rounds of these is computed, where none fails."""
        alive, before, rounds = self.search.trials, 0, 0
        for t in self.rungs:
            rounds += alive * (t - before)
            alive, before = math.ceil(alive / 2), t
        return rounds / (self.search.trials * self.rungs[-1])

    @property
    def confirming(self) -> list[Cell]:
        """The cells of the best candidates by now, or of the first ones, on the further seeds."""
        best = list(dict.fromkeys((*self.contest.order, *self.cells)))[:PAIR]
        return [self.cells[k][seed] for k in best for seed in self.search.confirm or ()]

    @property
    def contest(self) -> Contest:
        """As it stands on disk now."""
        cells = {k: {seed: cell.folder_in(self.folder) for seed, cell in own.items()} for k, own in self.cells.items()}
        return Contest(self.key, self.search, self.rungs, cells)

    def entrants(self, rung: int) -> list[Cell]:
        """The cells that are to reach a rung, each with the round at which it ends for now."""
        alive, until = self.contest.entrants(rung), self.rungs[rung]
        return [replace(self.cells[k][seed], until=until) for k in alive for seed in self.search.seeds]

    def asked(self) -> list[Cell]:
        """The cells that the rule of confirmation asks for by now, or has asked for."""
        contest = self.contest
        if not contest.is_confirmed:
            return []
        return [self.cells[k][seed] for k, seeds in contest.course.asked.items() for seed in seeds]


def tried(
    suite: Suite, points: Sequence[Point], registry: Registry, facts: CachedFacts, suite_folder: Path
) -> list[Tried]:
    """The contests of a suite that is to be tuned; points: of its candidates. A method that is not `tunable` tries the
    first alone."""
    assert (tuning := suite.tuning) is not None
    points = [
        point
        for point in points
        if not point.candidate or registry.catalogue.find("method", point.config["method"]["name"]).tunable
    ]
    found: dict[Key, dict[int, dict[int, Cell]]] = {}
    for cell in cells_of(points, registry, facts):
        for point in cell.points:
            assert point.candidate is not None
            key = (point.scenario, point.variant, point.method)
            found.setdefault(key, {}).setdefault(point.candidate, {})[point.seed] = cell
    search = _search_of(tuning)
    rungs = {key: rungs_of(cells[0][search.seeds[0]].config, search.halving) for key, cells in found.items()}
    return [Tried(key, search, rungs[key], dict(sorted(cells.items())), suite_folder) for key, cells in found.items()]


def _search_of(tuning: Tuning) -> Search:
    """What is kept of a tuning in the index."""
    values = [candidate.values for candidate in tuning.candidates]
    search = Search(tuning.space, values, list(tuning.seeds), tuning.metric, list(tuning.halving))
    if not tuning.confirm:
        return search
    beyond = [candidate.beyond for candidate in tuning.candidates if candidate.beyond is not None]
    return replace(search, confirm=list(tuning.confirm), beyond=beyond)


def searches_of(suite: Suite, cells: Sequence[Cell]) -> dict[Key, Search]:
    """What is kept with these cells: of each contest that one of them is a candidate of, what it was drawn in."""
    if suite.tuning is None:
        return {}
    search = _search_of(suite.tuning)
    points = (point for cell in cells for point in cell.points if point.candidate is not None)
    return {(point.scenario, point.variant, point.method): search for point in points}


def standing(contests: Sequence[Tried]) -> dict[Key, int]:
    """Who would win each contest by what is on disk; the first candidate where nothing is known yet."""
    found = {}
    for one in contests:
        contest = one.contest
        best = contest.order if contest.winner is None else [contest.winner]
        found[one.key] = next(iter(best), 0)
    return found


Compute = Callable[[list[Cell], Options, str], RunSummary]


def decide(contests: Sequence[Tried], options: Options, compute: Compute) -> dict[Key, int] | None:
    """Have every contest's candidates computed, rung by rung, and the best confirmed; its winner by its key, where it
    has one. None where cells of a rung are left.

    compute(cells, options, stage): computes those cells that are not there yet.
    """
    most = max((len(one.rungs) for one in contests), default=0)
    for rung in range(most):
        there = [one for one in contests if rung < len(one.rungs)]
        again = replace(options, force=options.force and rung == 0)
        stage = f"tuning, part {rung + 1} of {most}"
        if not _computed([cell for one in there for cell in one.entrants(rung)], again, compute, stage):
            return None
    if not _confirmed(contests, options, compute):
        return None
    winners = {one.key: one.contest.winner for one in contests}
    return {key: k for key, k in winners.items() if k is not None}


def _confirmed(contests: Sequence[Tried], options: Options, compute: Compute) -> bool:
    """Have computed what the rule of confirmation asks for, until that is all; False where cells are left."""
    begun = {cell.id for one in contests for cell in one.every}  # by this run, and so not to be begun again by --force
    done = {cell.id for one in contests if one.rungs for cell in one.entrants(len(one.rungs) - 1)}
    while asked := {cell.id: cell for one in contests for cell in one.asked() if cell.id not in done}:
        for fresh in (False, True):
            part = [cell for id, cell in asked.items() if (id not in begun) == fresh]
            again = replace(options, force=options.force and fresh)
            if part and not _computed(part, again, compute, "tuning, confirming"):
                return False
        done |= asked.keys()
    return True


def _computed(cells: list[Cell], options: Options, compute: Compute, stage: str) -> bool:
    """Have cells computed, equal ones once; False where some are left."""
    return not compute(list({cell.id: cell for cell in cells}.values()), options, stage).left


def leave(contests: Sequence[Tried], suite_folder: Path) -> None:
    """Delete the checkpoints of candidates that were halved, and pack them: who wins is known, and these can only start
    again."""
    for one in contests:
        for cell in (cell for own in one.cells.values() for cell in own.values()):
            folder = cell.folder_in(suite_folder)
            if (manifest := believed_manifest(folder)) is not None and manifest["status"] == HALVED:
                forget(folder)
    with suppress(UserError):  # as at the end of a run
        pack(suite_folder)


def _status(cell: Cell, suite_folder: Path) -> str:
    folder = cell.folder_in(suite_folder)
    return status(cell, folder, believed_manifest(folder))
