"""fedbench plan: what a suite would compute, without computing it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedbench.commands.choices import DEVICE, FORM, JOBS, RESULTS, SUITE, TIMEOUT, cells, gone, workers
from fedbench.commands.terminal import say
from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results.columns import ENDED
from fedbench.results.tuning import Contest
from fedbench.runner.cells import (
    BuildErrors,
    Cell,
    Options,
    Preparing,
    cells_of,
    doubts_of,
    folders_of,
    manifests_of,
    names_taken,
    status,
    without_hub,
)
from fedbench.runner.estimate import Estimate, cost_estimates, estimate
from fedbench.runner.runner import load
from fedbench.runner.successive_halving import candidates_of, standing
from fedbench.suite import Suite
from fedbench.suite.points import repeats
from fedbench.words import counted, human_bytes, roughly, three_digits

Row = dict[str, Any]


@click.command()
@SUITE
@cells
@RESULTS
@click.option("--cost", is_flag=True, help="Also show the time, if past cells of the same kinds tell it.")
@TIMEOUT
@DEVICE
@JOBS
@gone("--json", "--format json prints the same")
@FORM
def plan(
    suite: str,
    results: str,
    cost: bool,
    timeout: float | None,
    device: str,
    jobs: str,
    form: str,
    plugins: tuple,
    **choices,
) -> None:
    """Show the cells of SUITE: rounds and examples, the FLOPs and bytes of all clients together, and what is finished.

    \b
    fedbench plan suites/extreme_hetero.yaml
    fedbench plan suites/quickstart.yaml --cost --jobs 2
    fedbench plan suites/quickstart.yaml --set train.rounds=100 --format json

    `--format json` prints the cells with all that is known of each.

    Exit code: 0, or 1 if a plugin fails; its cells are marked.
    """
    from fedbench.commands.output import Spinner, put, warn_of_lost

    options = Options(results=results, device=device, jobs=workers(jobs), timeout=timeout)
    with Spinner(f"Planning {suite}") as spinner:
        registry = Registry(plugins, timeout=timeout)
        chosen = {key: choices.pop(key) for key in ("scenarios", "methods", "seeds", "variants")}
        loaded = load(suite, registry, **choices)
        folder, facts = Path(results) / loaded.name, CachedFacts(registry, loaded.base)
        rows, time = forecast(loaded, chosen, folder, registry, facts, options, cost, spinner.tell)
        points = loaded.points(**chosen)
        configs = [point.config for point in points]
        warnings = [*names_taken(configs, "local", registry), *filter(None, [without_hub(configs, registry)])]
        warnings += doubts_of(configs, facts)
    if form == "json":
        click.echo(json.dumps(_as_json(loaded.name, rows, time), indent=1))
    else:
        from fedbench.report.views import lists

        sentences = [_sums(loaded.name, rows), _duration(time) if time else "", *lists.notes_of(rows), repeats(points)]
        put(lists.plan(loaded.name, rows, filter(None, sentences)), form)
    for warning in warnings:
        say(f"Warning: {warning}", err=True)
    lost = warn_of_lost(registry)
    sys.exit(1 if lost or any("failed" in row for row in rows) else 0)


def _as_json(suite: str, rows: Sequence[Row], time: Estimate | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"suite": suite, "cells": rows}
    if time:
        took = {"seconds": time.total, "seconds_left": time.left}
        shown["time"] = {**took, "workers": time.workers, "cells_unknown": time.unknown}
    return shown


def forecast(
    suite: Suite,
    chosen: Mapping[str, Sequence],
    folder: Path,
    registry: Registry,
    facts: CachedFacts,
    options: Options,
    timed: bool = False,
    preparing: Preparing = lambda done, of: None,
) -> tuple[list[Row], Estimate | None]:
    """The rows: of a suite that is tuned first all candidates of a method as one, then the cells that report, as the
    candidates that lead by now would have them; and how long all takes here, where that is asked for.

    Args:
        chosen: scenarios, methods, seeds and variants, as `Suite.points` has them.
        folder: of the suite's results.
        timed: whether to say how long it takes, as far as past cells tell.
        preparing: see `runner.cells`.

    Raises UserError.
    """
    named = {key: chosen[key] for key in ("scenarios", "methods", "variants")}
    given, contests, there = suite, list[Contest](), dict[Path, Cell]()
    if suite.tuning:
        contests, there = candidates_of(suite, suite.candidates(**named), registry, facts, folder)
        suite = suite.tuned(standing(contests))
    reporting = cells_of(suite.points(**chosen), registry, facts)
    confirming = {one.key: [there[folder] for folder in one.confirming] for one in contests}
    trying = {one.key: [there[folder] for folder in one.every] for one in contests}
    tuned = {key: [*trying[key], *confirming[key]] for key in trying}
    candidates = {cell.id: cell for cells in tuned.values() for cell in cells}
    every = [*candidates.values(), *reporting]
    totals = _estimated(every, facts, BuildErrors(given), preparing, options.timeout)
    shares = {cell.id: 1.0 for cells in confirming.values() for cell in cells}
    shares |= {cell.id: one.share for one in contests for cell in trying[one.key]}
    folders = folders_of(every, folder)
    manifests = manifests_of(folders, folder)
    possible = [cell for cell in every if "flops" in totals[cell.id]]
    time = estimate(possible, manifests, options, shares) if timed else None
    equal: dict[tuple[str, ...], list[Contest]] = {}
    for one in contests:
        equal.setdefault(tuple(sorted(cell.id for cell in tuned[one.key])), []).append(one)
    rows = []
    for ones in equal.values():
        key = ones[0].key
        ids = list(dict.fromkeys(cell.id for cell in tuned[key]))
        rows.append(_of_candidates(ones, ids, len(confirming[key]), shares, totals, manifests, time))
    rows += [
        _of_cell(cell, totals[cell.id], status(cell, folders[cell.id], manifests[cell.id]), time) for cell in reporting
    ]
    return rows, time


def _estimated(
    cells: Sequence[Cell], facts: CachedFacts, refusals: BuildErrors, preparing: Preparing, timeout: float | None
) -> dict[str, Row]:
    """What each will cost, by its id; where a plugin is to blame that this is `unknown`, the row is `failed`. Raises
    UserError where no cell can run."""
    distinct = {cell.id: cell for cell in cells}
    found = cost_estimates([(id, cell.config) for id, cell in distinct.items()], facts, timeout, preparing)
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


def _of_cell(cell: Cell, totals: Row, status: str, time: Estimate | None) -> Row:
    row = {
        "names": [[point.scenario, point.method, point.variant, point.seed] for point in cell.points],
        "id": cell.id,
        "rounds": cell.config["train"]["rounds"],
        "status": status,
        **totals,
    }
    own = time and time.cells.get(cell.id)
    return row | {"seconds": own.seconds, "seconds_from": own.source} if own else row


def _of_candidates(
    equal: Sequence[Contest],
    ids: Sequence[str],
    confirming: int,
    shares: Mapping[str, float],
    totals: Mapping[str, Row],
    manifests: Mapping[str, Row | None],
    time: Estimate | None,
) -> Row:
    """All candidates of one method, and of those whose candidates are the same: what they come to where the worse half
    is left behind at every rung and the best are confirmed at once."""
    one = equal[0]
    done = sum(one is not None and one["status"] in ENDED for one in map(manifests.get, ids))
    row: Row = {
        "names": [[scenario, method, variant, None] for scenario, variant, method in (each.key for each in equal)],
        "ids": list(ids),
        "rounds": one.rungs[-1],
        "rungs": list(one.rungs),
        **({"confirm": confirming} if confirming else {}),
        "status": f"{done} of {len(ids)} tried",
    }
    row |= _sum([(totals[id], shares[id]) for id in ids])
    if time is None:
        return row
    seconds = [own.seconds for id in ids if (own := time.cells.get(id)) and own.seconds is not None]
    return row | {"seconds": sum(seconds) if seconds else None}


def _sum(shared: Sequence[tuple[Row, float]]) -> Row:
    """What candidates come to, each with the share of its rounds that is to be expected. Of those whose cost is unknown
    the first one's reason stands there, and under `unpriced` how many they are; where no cost is known, that reason
    alone. One that is not applicable costs nothing."""
    parts = [part for part, _ in shared]
    estimated = [(part, share) for part, share in shared if "flops" in part]
    unknown = [part["unknown"] for part in parts if "unknown" in part]
    if not estimated:
        return dict(parts[0])
    row: Row = {}
    for key in dict.fromkeys(key for part, _ in estimated for key in part):  # in some no client may take part
        numbers = [(part[key], share) for part, share in estimated if key in part]
        total = sum(number * share for number, share in numbers)
        row[key] = round(total) if isinstance(numbers[0][0], int) else total
    if "fewest_holders" in row:
        row["fewest_holders"] = min(part["fewest_holders"] for part, _ in estimated if "fewest_holders" in part)
    if unknown:
        row |= {"unknown": unknown[0], "unpriced": len(unknown)}
    return row | {"failed": True} if any("failed" in part for part in parts) else row


def _sums(suite: str, rows: list[dict]) -> str:
    """What all cells come to."""
    examples, flops, down, up = (
        sum(row.get(key, 0) for row in rows) for key in ("images", "flops", "bytes_down", "bytes_up")
    )
    cells = sum(len(row.get("ids", [""])) for row in rows)
    unknown = sum(row.get("unpriced", len(row.get("ids", [""]))) for row in rows if "unknown" in row)
    names = sum(len(row["names"]) for row in rows if "ids" not in row)
    reporting = sum("ids" not in row for row in rows)
    cells_and_names = counted(cells, "cell") + (f" under {names} names" if names > reporting else "")
    marks = " or ".join(sorted({"failed" if "failed" in row else "?" for row in rows if "unknown" in row}))
    return (
        f"{suite}: {cells_and_names}; in all {examples:,} training examples, {three_digits(flops / 1e12)} TFLOPs, "
        f"{human_bytes(down)} down and {human_bytes(up)} up"
        + (f", without the {counted(unknown, 'cell')} marked {marks}." if unknown else ".")
    )


def _duration(time: Estimate) -> str:
    """How long the suite takes here, and how that was found out."""
    if time.device == "cuda":
        where = "a GPU" + f" that {time.workers} cells share" * (time.workers > 1)
    else:
        where = counted(time.workers, "core")
    if time.unknown and not time.left:
        return f"How long it takes on {where} is not known: no cell of these kinds has run on this machine."
    if time.left:
        length = roughly(time.left) + (f" left of {roughly(time.total)}" if time.left < time.total else "")
        without = f", without the {counted(time.unknown, 'cell')} of kinds that have not run" if time.unknown else ""
        return f"About {length} on {where}, from past runs on this machine{without}."
    return f"Already finished; it would take about {roughly(time.total)} on {where}."
