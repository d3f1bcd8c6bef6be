"""What a suite would compute and what that costs, before any of it is: the rows that `plan` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.results.status import ENDED
from fedbench.runner.build_errors import Refusals
from fedbench.runner.cells import Cell, cells_of, folders_of, status
from fedbench.runner.estimate import Estimate, estimate
from fedbench.runner.options import Options, Preparing, unheard
from fedbench.runner.successive_halving import Tried, standing, tried
from fedbench.simulation.cost_estimate import cost_estimates
from fedbench.suite import Suite

Row = dict[str, Any]


def forecast(
    suite: Suite,
    chosen: Mapping[str, Sequence],
    folder: Path,
    registry: Registry,
    assets: Assets,
    options: Options,
    timed: bool = False,
    preparing: Preparing = unheard,
) -> tuple[list[Row], Estimate | None]:
    """The rows: of a suite that is tuned first all candidates of a method as one, then the cells that report, as the
    candidates that lead by now would have them; and how long all takes here, where that is asked for.

    chosen: scenarios, methods, seeds and variants, as `Suite.points` has them · folder: of the suite's results ·
    timed: whether to find out the time · preparing: see `runs.options`. Raises UserError.
    """
    named = {key: chosen[key] for key in ("scenarios", "methods", "variants")}
    contests = tried(suite, suite.candidates(**named), registry, assets) if suite.tuning else []
    given = suite
    if suite.tuning:
        suite = suite.tuned(standing(contests, folder, suite.tuning.metric))
    reporting = cells_of(suite.points(**chosen), registry, assets)
    candidates = {cell.id: cell for one in contests for cell in one.every}
    every = [*candidates.values(), *reporting]
    totals = _estimated(every, assets, Refusals(given), preparing, options.timeout)
    shares = {cell.id: one.share for one in contests for cell in one.every}
    folders = folders_of(every, folder)
    manifests = {id: read_manifest(place) for id, place in folders.items()}
    time = _time(every, totals, folder, registry, options, shares) if timed else None
    alike: dict[tuple[str, ...], list[Tried]] = {}
    for one in contests:
        alike.setdefault(tuple(sorted(cell.id for cell in one.every)), []).append(one)
    rows = [_of_candidates(ones, totals, manifests, time) for ones in alike.values()]
    rows += [
        _of_cell(cell, totals[cell.id], status(cell, folders[cell.id], manifests[cell.id]), time) for cell in reporting
    ]
    return rows, time


def _estimated(
    cells: Sequence[Cell], assets: Assets, refusals: Refusals, preparing: Preparing, timeout: float | None
) -> dict[str, Row]:
    """What each will cost, by its id; where a plugin is to blame that this is `unknown`, the row is `failed`. Raises
    UserError where no cell can run."""
    distinct = {cell.id: cell for cell in cells}
    found = cost_estimates([(id, cell.config) for id, cell in distinct.items()], assets, timeout, preparing)
    totals = {}
    for cell in cells:
        totals[cell.id] = row = found[cell.id]
        if refused := row.get("refused", row.get("broke")):
            refusals.add(cell, UserError(refused, option=row.get("option", "")))
            totals[cell.id] = {"unknown": refused}
        if failed := row.get("failed", row.get("broke")):
            totals[cell.id] = {"unknown": failed, "failed": True}
    refusals.raise_any(len(cells))
    return totals


def _time(
    cells: Sequence[Cell],
    totals: Mapping[str, Row],
    folder: Path,
    registry: Registry,
    options: Options,
    shares: Mapping[str, float],
) -> Estimate:
    device = "cpu"
    if options.on_gpu:
        from fedbench.simulation.worker import resolved  # imports torch, and the time is seldom asked for

        device = resolved(options.device)
    return estimate(cells, totals, folder, registry, device, options.workers(), shares)


def _of_cell(cell: Cell, totals: Row, status: str, time: Estimate | None) -> Row:
    row = {
        "names": [[point.scenario, point.method, point.variant, point.seed] for point in cell.points],
        "id": cell.id,
        "rounds": cell.config["train"]["rounds"],
        "status": status,
        **totals,
    }
    own = time and time.cells.get(cell.id)
    return row | {"seconds": own.seconds, "seconds_from": own.source, "seconds_unknown": own.reason} if own else row


def _of_candidates(
    alike: Sequence[Tried], totals: Mapping[str, Row], manifests: Mapping[str, Row | None], time: Estimate | None
) -> Row:
    """All candidates of one method, and of those whose candidates are the same: what they come to where the worse half
    is left behind at every rung."""
    one = alike[0]
    cells = {cell.id: cell for cell in one.every}
    done = sum(one is not None and one["status"] in ENDED for one in map(manifests.get, cells))
    row: Row = {
        "names": [[scenario, method, variant, None] for scenario, variant, method in (each.key for each in alike)],
        "ids": list(cells),
        "rounds": one.rungs[-1],
        "rungs": list(one.rungs),
        "status": f"{done} of {len(cells)} tried",
    }
    row |= _sum([totals[id] for id in cells], one.share)
    if time is None:
        return row
    seconds = [own.seconds for id in cells if (own := time.cells.get(id)) and own.seconds is not None]
    return row | {"seconds": sum(seconds) if seconds else None}


def _sum(parts: Sequence[Row], share: float) -> Row:
    """What candidates come to that compute so large a share of all their rounds. Of those that nobody can price the
    reason stands there, and under `unpriced` how many they are; where none can be priced, the first one's reason alone.
    One that is not applicable costs nothing."""
    priced = [part for part in parts if "flops" in part]
    unknown = [part["unknown"] for part in parts if "unknown" in part]
    if not priced:
        return dict(parts[0])
    row: Row = {}
    for key in dict.fromkeys(key for part in priced for key in part):  # nobody may take part in some
        numbers = [part[key] for part in priced if key in part]
        total = share * sum(numbers)
        row[key] = round(total) if isinstance(numbers[0], int) else total
    if unknown:
        row |= {"unknown": unknown[0], "unpriced": len(unknown)}
    return row | {"failed": True} if any("failed" in part for part in parts) else row
