"""A suite that is tuned before it reports: candidates rung by rung, then the winners on the reporting seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results.columns import HALVED
from fedbench.results.files import believed_manifest
from fedbench.results.pack import pack
from fedbench.results.tuning import Contest, Key, rungs_of
from fedbench.runner.cells import Cell, Options, cells_of, status
from fedbench.runner.progress import RunSummary
from fedbench.simulation.checkpoint import forget
from fedbench.suite import Point, Suite
from fedbench.types.tuning import Tuning


def candidates_of(
    suite: Suite, points: Sequence[Point], registry: Registry, facts: CachedFacts, suite_folder: Path
) -> tuple[list[Contest], dict[Path, Cell]]:
    """The contests of a suite that is to be tuned, and their cells by folder, also those that are run only where the
    rule of confirmation asks for them.

    points: of its candidates. A method that is not `tunable` tries the first alone.
    """
    assert (tuning := suite.tuning) is not None
    points = [
        point
        for point in points
        if not point.candidate or registry.catalogue.find("method", point.config["method"]["name"]).tunable
    ]
    found: dict[Key, dict[int, dict[int, Path]]] = {}
    by_folder: dict[Path, Cell] = {}
    for cell in cells_of(points, registry, facts):
        folder = cell.folder_in(suite_folder)
        by_folder[folder] = cell
        for point in cell.points:
            assert point.candidate is not None
            key = (point.scenario, point.variant, point.method)
            found.setdefault(key, {}).setdefault(point.candidate, {})[point.seed] = folder
    contests = []
    for key, folders in found.items():
        rungs = rungs_of(by_folder[folders[0][tuning.seeds[0]]].config, tuning.halving)
        contests.append(Contest(key, tuning, rungs, dict(sorted(folders.items()))))
    return contests, by_folder


def tunings_of(suite: Suite, cells: Sequence[Cell]) -> dict[Key, Tuning]:
    """What is kept with these cells: of each contest that one of them is a candidate of, what it was drawn in."""
    if suite.tuning is None:
        return {}
    points = (point for cell in cells for point in cell.points if point.candidate is not None)
    return {(point.scenario, point.variant, point.method): suite.tuning for point in points}


def standing(contests: Sequence[Contest]) -> dict[Key, int]:
    """Who would win each contest by what is on disk; the first candidate where nothing is known yet."""
    found = {}
    for one in contests:
        contest = one.again()
        best = contest.order if contest.winner is None else [contest.winner]
        found[one.key] = next(iter(best), 0)
    return found


Compute = Callable[[list[Cell], Options, str], RunSummary]


def decide(
    contests: Sequence[Contest], candidates: Mapping[Path, Cell], options: Options, compute: Compute
) -> dict[Key, int] | None:
    """Have every contest's candidates computed, rung by rung, and the best confirmed; its winner by its key, where it
    has one. None where cells of a rung are left.

    Args:
        contests: as they stand on disk when this begins, or did before.
        candidates: their cells by folder.
        options: how cells are computed.
        compute: `compute(cells, options, stage)` computes those cells that are not there yet.
    """
    most = max((len(one.rungs) for one in contests), default=0)
    for rung in range(most):
        there = [one.again() for one in contests if rung < len(one.rungs)]
        cells = [replace(candidates[folder], until=one.rungs[rung]) for one in there for folder in one.entering(rung)]
        again = replace(options, force=options.force and rung == 0)
        stage = f"tuning, part {rung + 1} of {most}"
        if not _computed(cells, again, compute, stage):
            return None
    if not _confirmed(contests, candidates, options, compute):
        return None
    winners = {one.key: one.again().winner for one in contests}
    return {key: k for key, k in winners.items() if k is not None}


def _confirmed(
    contests: Sequence[Contest], candidates: Mapping[Path, Cell], options: Options, compute: Compute
) -> bool:
    """Have computed what the rule of confirmation asks for, until that is all; False where cells are left."""
    begun = {folder for one in contests for folder in one.every}  # by this run, and so not to be begun again by --force
    done = {folder for one in contests if one.rungs for folder in one.again().entering(len(one.rungs) - 1)}
    while asked := dict.fromkeys(folder for one in contests for folder in one.again().asked if folder not in done):
        for fresh in (False, True):
            part = [candidates[folder] for folder in asked if (folder not in begun) == fresh]
            again = replace(options, force=options.force and fresh)
            if part and not _computed(part, again, compute, "tuning, confirming"):
                return False
        done |= asked.keys()
    return True


def _computed(cells: list[Cell], options: Options, compute: Compute, stage: str) -> bool:
    """Have cells computed, equal ones once; False where some are left."""
    return not compute(list({cell.id: cell for cell in cells}.values()), options, stage).left


def leave(contests: Sequence[Contest], suite_folder: Path) -> None:
    """Delete the checkpoints of candidates that were halved, and pack them: who wins is known, and these can only start
    again."""
    for one in contests:
        for folder in (folder for own in one.cells.values() for folder in own.values()):
            if (manifest := believed_manifest(folder)) is not None and manifest["status"] == HALVED:
                forget(folder)
    with suppress(UserError):  # as at the end of a run
        pack(suite_folder)


def _status(cell: Cell, suite_folder: Path) -> str:
    folder = cell.folder_in(suite_folder)
    return status(cell, folder, believed_manifest(folder))
