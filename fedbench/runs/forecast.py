"""What a suite would compute and what that costs, before any of it is: the rows that `plan` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.cell.alike import alike_together
from fedbench.cell.totals import Totals
from fedbench.errors import UserError
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.results.status import ENDED
from fedbench.runs.options import Options, Preparing, unheard
from fedbench.runs.plan import Cell, cells_of, folders_of, status
from fedbench.runs.refusals import Refusals
from fedbench.runs.tuned import Tried, standing, tried
from fedbench.runs.twins import as_others
from fedbench.suite import Suite

if TYPE_CHECKING:
    from fedbench.runs.estimate import Estimate

Row = dict[str, Any]


def forecast(
    suite: Suite,
    chosen: Mapping[str, Sequence],
    folder: Path,
    registry: Registry,
    assets: Assets,
    options: Options,
    trying: Callable[[], AbstractContextManager] | None = None,
    preparing: Preparing = unheard,
) -> tuple[list[Row], Estimate | None]:
    """The rows: of a suite that is tuned first all candidates of a method as one, then the cells that report, as the
    candidates that lead by now would have them; and how long all takes here, where that is asked for. A row whose cell
    is equal to another's in all that matters, and is not computed, has the id of that cell under `as`.

    chosen: scenarios, methods, seeds and variants, as `Suite.points` has them · folder: of the suite's results ·
    trying: what is entered while cells are tried to find out the time · preparing: see `runs.options`. Raises
    UserError.
    """
    named = {key: chosen[key] for key in ("scenarios", "methods", "variants")}
    contests = tried(suite, suite.candidates(**named), registry, assets) if suite.tuning else []
    given = suite
    if suite.tuning:
        suite = suite.tuned(standing(contests, folder, suite.tuning.metric))
    reporting = cells_of(suite.points(**chosen), registry, assets)
    candidates = {cell.id: cell for one in contests for cell in one.every}
    every = [*candidates.values(), *reporting]
    totals = _priced(every, assets, Refusals(given), preparing)
    shares = {cell.id: one.share for one in contests for cell in one.every}
    folders = folders_of(every, folder)
    manifests = {id: read_manifest(place) for id, place in folders.items()}
    others = as_others({cell.id: cell for cell in every}.values(), totals, manifests)
    computed = [cell for cell in every if cell.id not in others]
    time = _time(computed, totals, folder, registry, options, shares, trying) if trying else None
    alike: dict[tuple[str, ...], list[Tried]] = {}
    for one in contests:
        alike.setdefault(tuple(sorted(cell.id for cell in one.every)), []).append(one)
    rows = [_of_candidates(ones, totals, manifests, time) for ones in alike.values()]
    rows += [
        _of_cell(cell, totals[cell.id], status(cell, folders[cell.id], manifests[cell.id]), time) for cell in reporting
    ]
    return [_with_twin(row, others) for row in rows], time


def _priced(cells: Sequence[Cell], assets: Assets, refusals: Refusals, preparing: Preparing) -> dict[str, Row]:
    """What each will cost, by its id. Raises UserError where that cannot be said of any."""
    totals = {}
    order = list(alike_together(cells, lambda cell: cell.config))
    with Totals(assets, [(cell.id, cell.config) for cell in order]) as known:
        for done, cell in enumerate(order):
            preparing(done, len(cells))
            try:
                totals[cell.id] = known.of(cell.id, cell.config)
            except UserError as error:
                refusals.add(cell, error)
                totals[cell.id] = {"unknown": str(error)}
    refusals.raise_any(len(cells))
    return totals


def _with_twin(row: Row, others: Mapping[str, Cell]) -> Row:
    """A row that says `as` which cell its own is, or its first, where none of its cells is computed."""
    ids = row.get("ids") or [row["id"]]
    return row | {"as": others[ids[0]].id} if all(id in others for id in ids) else row


def _time(
    cells: Sequence[Cell],
    totals: Mapping[str, Row],
    folder: Path,
    registry: Registry,
    options: Options,
    shares: Mapping[str, float],
    trying: Callable[[], AbstractContextManager],
) -> Estimate:
    from fedbench.runs.estimate import estimate

    device = "cpu"
    if options.on_gpu:
        from fedbench.cell.worker import resolved  # imports torch, and the time is seldom asked for

        device = resolved(options.device)
    with trying():
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
    return row | {"unknown": unknown[0], "unpriced": len(unknown)} if unknown else row
