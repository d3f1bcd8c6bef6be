"""fedbench reproduce: run the cells of a page or a results folder again, and compare each."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import DEVICE, FORM, JOBS, PLUGINS, Amount, workers

if TYPE_CHECKING:
    import pandas

    from fedbench.registry.assets import Assets
    from fedbench.registry.registry import Registry
    from fedbench.report.frames import Frame
    from fedbench.results.diff import CellSummary
    from fedbench.runner.cells import Cell
    from fedbench.suite import Suite

MACHINE = ("cpu", "system", "python")  # what of a machine may change a result, and is known before the run


@click.command(short_help="Run the cells of a page or a results folder again, and compare.")
@click.argument("source", nargs=-1, required=True, type=click.Path(), metavar="SOURCE...")
@click.option("--cells", "count", type=click.IntRange(min=1), metavar="N", help="Only so many cells, a sample.")
@click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios.")
@click.option("--method", "methods", multiple=True, metavar="GLOB", help="Only these methods.")
@click.option("--seed", "seeds", multiple=True, type=int, metavar="N", help="Only these seeds.")
@click.option("--results", default="reproduced", show_default=True, metavar="DIR", help="Where the new results go.")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[THERE=]DIR",
    help="Where data are that SOURCE gives the root THERE, or all data with a root.",
)
@click.option("--no-run", is_flag=True, help="Only print what differs here.")
@click.option(
    "--equivalent",
    type=Amount(min=0),
    metavar="POINTS",
    help="A difference of scores that may pass whatever seeds do, in percent where they are.",
)
@click.option("--quiet", is_flag=True, help="No bars while it runs.")
@DEVICE
@JOBS
@PLUGINS
@FORM
def reproduce(
    source: tuple,
    count: int | None,
    scenarios: tuple,
    methods: tuple,
    seeds: tuple,
    results: str,
    roots: tuple,
    no_run: bool,
    equivalent: float | None,
    quiet: bool,
    plugins: tuple,
    form: str,
    **given: Any,
) -> None:
    """Run the finished cells of SOURCE again, a page of `fedbench report` or results folders, and compare each.

    \b
    fedbench reproduce report.html --cells 3
    fedbench reproduce report.html --no-run
    fedbench reproduce results/quickstart --method fedra

    Suites, seeds and versions are recovered from SOURCE; what differs here is printed first. A cell is equal, within
    seed noise, or different. What is finished in --results is kept. Exit code: 0 all equal or within noise, 1 something
    is different or could not be run, 2 SOURCE cannot be read, or its data are not here (--root says where).
    """
    from fedbench.commands.output import put
    from fedbench.registry.registry import Registry
    from fedbench.report.changes import NOT_RUN, verdicts
    from fedbench.results.diff import DIFFERENT, diff

    everything = read_source(source)
    chosen = sample(_chosen(everything, scenarios, methods, seeds), count)
    folder = Path(results)
    _refuse_itself(source, folder)
    registry = Registry(plugins)
    plan = plan_again(chosen, registry, folder, roots)
    settings = settings_here(chosen, plan)
    if no_run or form == "rich":
        put(_before(", ".join(source), chosen, settings, plan), form)
    if no_run:
        sys.exit(1 if plan.lacking else 0)
    _run(plan, registry, results, quiet or form != "rich", given)
    found = verdicts(diff(chosen, computed(chosen, plan, folder)), everything, equivalent or 0.0)
    put(_after(found, settings, form not in ("csv", "json")), form)
    sys.exit(1 if found.verdict.isin((DIFFERENT, NOT_RUN)).any() else 0)


def read_source(paths: Sequence[str]) -> list[CellSummary]:
    """Every finished cell of a page, or of results folders.

    Raises:
        UserError: It is neither, or something does not match its checksum.
    """
    from fedbench.errors import UserError
    from fedbench.report.html.origin import read_page
    from fedbench.results import examine
    from fedbench.results.diff import CellSummary

    if len(paths) == 1 and Path(paths[0]).is_file():
        return read_page(Path(paths[0]))
    if missing := [path for path in paths if not Path(path).exists()]:
        raise UserError(f"{missing[0]}: not there. Wanted: a page of `fedbench report`, or results folders.")
    found = examine(paths).read(("eval", "rounds"))
    if found.wrong:
        lines = "\n  ".join(found.wrong[:20])
        raise UserError(f"checksums do not match, so that there is nothing to compare with:\n  {lines}")
    return [CellSummary.of(r, files=False) for r in found.results if r.status == "finished"]


def sample(cells: Sequence[CellSummary], count: int | None) -> list[CellSummary]:
    """So many of them, the same whatever their order: those whose ids have the lowest hashes."""
    from fedbench.disk import hash_of_bytes

    chosen = set(sorted({cell.id for cell in cells}, key=lambda id: hash_of_bytes(id.encode()))[:count])
    return [cell for cell in cells if cell.id in chosen]


def _chosen(
    cells: Sequence[CellSummary], scenarios: Sequence[str], methods: Sequence[str], seeds: Sequence[int]
) -> list[CellSummary]:
    """Those that match. Raises: UserError where none does."""
    from fnmatch import fnmatchcase

    from fedbench.errors import UserError

    def fits(name: str, patterns: Sequence[str]) -> bool:
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    found = [c for c in cells if fits(c.scenario, scenarios) and fits(c.method, methods)]
    found = [c for c in found if not seeds or c.seed in seeds]
    if not found:
        raise UserError("no finished cell of SOURCE is asked for" if cells else "SOURCE has no finished cell")
    return found


def _refuse_itself(source: Sequence[str], results: Path) -> None:
    """Raises: UserError where the new results would lie among those they are compared with."""
    from fedbench.errors import UserError

    folders = [Path(path).resolve() for path in source if Path(path).is_dir()]
    if any(results.resolve() in (one, one.parent) for one in folders):
        raise UserError(f"{results} is SOURCE: choose another folder with --results DIR")


# What runs


@dataclass(frozen=True)
class Plan:
    """What can be run here.

    Attributes:
        suites: Each as it was read, with its assets and the cells of it that are run.
        cells: By name, its cell here.
        lacking: By name, why there is none.
    """

    suites: Sequence[tuple[Suite, Assets, list[Cell]]]
    cells: Mapping[tuple, Cell]
    lacking: Mapping[tuple, str]


def plan_again(cells: Sequence[CellSummary], registry: Registry, folder: Path, roots: Sequence[str] = ()) -> Plan:
    """Recover the suites of these cells into files in the folder, and read them like any suite.

    Raises:
        UserError: A suite cannot be read, or data or weights are not here.
    """
    from fedbench.commands.recovered import places, recovered
    from fedbench.disk import write_atomically
    from fedbench.registry.assets import Assets
    from fedbench.runner import runner
    from fedbench.runner.cells import cells_of

    lacking = {cell.name: reason for cell in cells if (reason := _lacks(cell, registry))}
    known = [cell for cell in cells if cell.name not in lacking]
    here = places(known, roots)
    suites: list[tuple[Suite, Assets, list[Cell]]] = []
    found: dict[tuple, Cell] = {}
    for number, one in enumerate(recovered(known), 1):
        file = folder / f"recovered-{number}.yaml"
        write_atomically(file, one.text().encode())
        suite = runner.load(file, registry, roots=here)
        points = list(one.points(suite))
        lacking |= {
            cell.name: f"this fedbench reads another configuration: {', '.join(keys)}"
            for cell, _, keys in points
            if keys
        }
        assets = Assets(registry, here)
        runnable = cells_of([point for _, point, keys in points if not keys], registry, assets)
        of_point = {id(point): cell for cell in runnable for point in cell.points}
        found |= {cell.name: of_point[id(point)] for cell, point, keys in points if not keys}
        if runnable:
            suites.append((suite, assets, runnable))
    return Plan(suites, found, lacking)


def _lacks(cell: CellSummary, registry: Registry) -> str:
    """Which component that it names is not installed; "" where all are."""
    from fedbench.errors import UserError
    from fedbench.runner.cells import references

    try:
        for kind, ref in references(dict(cell.manifest["config"])):
            registry.catalogue.find(kind, str(ref["name"]))
    except UserError as error:
        return str(error)
    except (KeyError, TypeError) as error:
        raise UserError(f"{_called(cell.name)}: not a configuration of fedbench ({error!r:.80})") from error
    return ""


def settings_here(cells: Sequence[CellSummary], plan: Plan) -> pandas.DataFrame:
    """The versions, fingerprints and machines that are not the same here, and in how many cells."""
    from fedbench import machine
    from fedbench.results.diff import settings

    mine = {name: str(value) for name, value in machine.describe("cpu").items() if name in MACHINE}
    pairs = []
    for cell in cells:
        if one := plan.cells.get(cell.name):
            theirs = {name: value for name, value in (cell.manifest.get("machine") or {}).items() if name in MACHINE}
            then = {name: cell.manifest.get(name) for name in ("versions", "fingerprints")} | {"machine": theirs}
            pairs.append((then, {"versions": one.versions, "fingerprints": one.fingerprints, "machine": mine}))
    return settings(pairs)


def _run(plan: Plan, registry: Registry, results: str, quiet: bool, given: dict[str, Any]) -> None:
    """Compute what is missing, with the bars of `fedbench run`: every cell, none is believed to equal another."""
    from fedbench.commands.screen import Screen, Spinner
    from fedbench.commands.watch import Watch
    from fedbench.errors import Interrupted
    from fedbench.processes.signals import raising
    from fedbench.runner.cells import Options
    from fedbench.runner.runner import Run

    options = Options(results=results, device=given["device"], jobs=workers(given["jobs"]))
    try:
        with raising(), Watch(Screen(), quiet) as watch, Spinner("Preparing", quiet) as spinner:

            def observe(name: str, cells: list, missing: list) -> Any:
                spinner.stop()
                return watch(name, cells, missing)

            for suite, assets, cells in plan.suites:
                one = Run.prepare(suite, cells, registry, assets, options, preparing=spinner.tell)
                one.close(one.compute(observe))
    except Interrupted as interrupted:
        click.echo("\nInterrupted. What is finished is kept; the same command runs the rest.", err=True)
        sys.exit(interrupted.exit_code)


def computed(cells: Sequence[CellSummary], plan: Plan, results: Path) -> list[CellSummary]:
    """These cells as they came out here; of those without a result with the reason."""
    from fedbench.results import examine
    from fedbench.results.diff import CellSummary

    folders = [results / suite.name for suite, _, _ in plan.suites]
    there = examine(list(dict.fromkeys(folders))).read(("eval", "rounds")).results if folders else []
    by_id = {r.manifest["id"]: r for r in there if r.manifest}
    found = []
    for cell in cells:
        one = plan.cells.get(cell.name)
        if one is None:
            found.append(replace(cell, status="", reason=plan.lacking[cell.name], given=None))
        elif result := by_id.get(one.id):
            here = CellSummary.of(result, files=False)
            reason = here.reason or "no reason is known"
            found.append(replace(cell, id=here.id, status=here.status, reason=reason, given=here.given))
    return found


# What is printed


def _before(source: str, cells: Sequence[CellSummary], settings: pandas.DataFrame, plan: Plan) -> Frame:
    """What is not the same here, before anything runs."""
    from fedbench.report.changes import changes_frame, settings_rows
    from fedbench.report.frames import page
    from fedbench.words import counted, shortened

    same = [] if len(settings) else ["versions, data, weights, processor and Python are those of the source"]
    by_reason: dict[str, list[str]] = {}
    for name, reason in plan.lacking.items():
        by_reason.setdefault(reason, []).append(_called(name))
    notes = [f"cannot run here: {shortened(titles, 3)}: {reason}" for reason, titles in by_reason.items()]
    title = f"{source}: {counted(len(cells), 'cell')}"
    caption = "what they were computed with, in names of both" if len(settings) else ""
    pages = [page(("settings",), title=title, caption=caption, notes=notes, remarks=same)]
    lacking = [{"cell": _called(name), "reason": reason} for name, reason in plan.lacking.items()]
    facts = {"source": source, "cells": len(cells), "differs_here": settings.to_dict("records"), "cannot_run": lacking}
    return changes_frame(settings_rows(settings, len(cells)), pages, [], **facts)


def _after(found: pandas.DataFrame, settings: pandas.DataFrame, people: bool) -> Frame:
    """Each cell with its verdict."""
    from fedbench.report.changes import MOST, NOISE_LEGEND, NOT_RUN, ORDER, changes_frame, reasons, verdict_rows
    from fedbench.report.frames import frame, page
    from fedbench.results.diff import DIFFERENT
    from fedbench.words import counted

    counts = Counter(found.verdict)
    told = ", ".join(f"{counts[name]} {name}" for name in ORDER[::-1] if counts[name])
    title = f"{counted(len(found), 'cell')}: {told}"
    if not people:
        same = not counts[DIFFERENT] and not counts[NOT_RUN]
        facts: dict[str, Any] = {
            "reproduced": same,
            "counts": dict(counts),
            "differs_here": settings.to_dict("records"),
        }
        return frame(found.to_dict("records"), list(found.columns), caption=title, by=(), **facts)
    more = [f"{counted(len(found) - MOST, 'more cell')}: csv and json have all"] if len(found) > MOST else []
    pages = [page(("cells",), title=title, notes=reasons(found, _called), remarks=more)]
    return changes_frame(verdict_rows(found[:MOST], _called), pages, NOISE_LEGEND)


def _called(name: Sequence[Any]) -> str:
    """A cell for people."""
    suite, scenario, variant, method, seed = name
    return f"{suite} · {scenario} · {method}{f' [{variant}]' if variant else ''} · seed {seed}"
