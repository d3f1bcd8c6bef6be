"""fedbench reproduce: run the cells of results folders again, and compare each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from fedbench import machine
from fedbench.commands.choices import DEVICE, FORM, JOBS, PLUGINS, SELECTION, Amount, FilePath, takes, workers
from fedbench.commands.output import Screen, Spinner, put
from fedbench.commands.terminal import say
from fedbench.commands.watch import Watch
from fedbench.data.sources import relative_root
from fedbench.disk import hash_of_bytes
from fedbench.errors import Interrupted, UserError
from fedbench.processes.signals import raising
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.report.grouping import select
from fedbench.report.views.by_name import PEOPLE
from fedbench.results import Result, examine
from fedbench.results.bundle import is_bundle, unpack
from fedbench.results.diff import name_of, settings
from fedbench.results.scores import first_metric
from fedbench.runner.cells import Cell, Options, cells_of, references
from fedbench.runner.runner import Run
from fedbench.suite import Point, Suite
from fedbench.words import counted, quoted, shortened

if TYPE_CHECKING:
    import pandas


MACHINE = ("cpu", "system", "python")  # what of a machine may change a result, and is known before the run


@click.command()
@click.argument("source", nargs=-1, required=True, type=FilePath(), metavar="SOURCE...")
@click.option("--cells", "count", type=click.IntRange(min=1), metavar="N", help="Only a sample of N cells.")
@takes(*SELECTION)
@click.option(
    "--results",
    default="reproduced",
    show_default=True,
    type=FilePath(),
    metavar="DIR",
    help="The folder of the new results.",
)
@click.option(
    "--root",
    type=FilePath(),
    metavar="DIR",
    help="The folder that relative roots of data refer to, if not the suite's own.",
)
@click.option("--no-run", is_flag=True, help="Only print what differs on this machine.")
@click.option(
    "--equivalent",
    type=Amount(min=0),
    metavar="POINTS",
    help="How much scores may differ from those of SOURCE, in percent if they are.  [default: 0]",
)
@click.option("--trust-plugins", "trusted", is_flag=True, help="Run the plugins that a bundle brings: read them first.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@DEVICE
@JOBS
@PLUGINS
@FORM
def reproduce(
    source: tuple,
    count: int | None,
    scenarios: tuple,
    methods: tuple,
    variants: tuple,
    seeds: tuple,
    results: str,
    root: str | None,
    no_run: bool,
    equivalent: float | None,
    trusted: bool,
    quiet: bool,
    plugins: tuple,
    form: str,
    **given: Any,
) -> None:
    """Run the finished cells of SOURCE, results folders or a bundle of `fedbench pack`, again, and compare each.

    \b
    fedbench reproduce appendix.zip
    fedbench reproduce results/quickstart --no-run
    fedbench reproduce results/quickstart --cells 3
    fedbench reproduce results/quickstart --method fedra --results again

    Cells run with the configurations that they recorded. What differs on this machine is printed first, and cells that
    are finished in --results are kept. Exit code: 0 if all scores are within --equivalent, 1 if some differ or could
    not be run, 2 if SOURCE cannot be read or its data are missing (--root names their folder).
    """
    from fedbench.report.views.changes import changes, for_people

    folders, brought = _unpacked(source, trusted, no_run)
    chosen = sample(select(finished(folders), scenarios, methods, seeds, variants), count)
    if not chosen:
        raise UserError("SOURCE has no finished cell")
    folder = Path(results)
    _refuse_itself(folders, folder)
    registry = Registry((*plugins, *brought))
    plan = plan_again(chosen, registry, folder, root)
    if no_run or form == "rich":
        put(_before(", ".join(source), chosen, settings_here(chosen, plan), plan), form)
    if no_run:
        sys.exit(1 if plan.lacking else 0)
    _run(plan, registry, results, quiet or form != "rich", given)
    titles, metric = (", ".join(source), results), first_metric(chosen[0].manifest["config"]["evaluation"])
    there = computed(plan, folder)
    found = changes(titles, chosen, there, metric, equivalent or 0.0)
    put(for_people(found) if form in PEOPLE else found, form)
    lost = set(map(name_of, chosen)) - {name_of(one) for one in there if one.status == "finished"}
    sys.exit(1 if lost or found.attrs["broken"] else 0)


def _unpacked(source: Sequence[str], trusted: bool, no_run: bool) -> tuple[list[str], list[str]]:
    """The folders of SOURCE, bundles unpacked until the command ends, and the files of plugins that these bring, as far
    as they may be loaded.

    Raises:
        UserError: for a file that is no bundle, and where cells are to run, for plugins that nobody has said to trust.
    """
    folders: list[str] = []
    brought: list[str] = []
    for path in source:
        if not is_bundle(path):
            folders.append(path)
            continue
        into = click.get_current_context().with_resource(TemporaryDirectory(prefix="fedbench-bundle-"))
        suites, plugins = unpack(Path(path), Path(into))
        folders += map(str, suites)
        brought += map(str, plugins if trusted else ())
        names = ", ".join(plugin.name for plugin in plugins)
        if plugins and not trusted and no_run:
            say(f"{path}: its code is not loaded, and cells that need it cannot run here: {names}", err=True)
        elif plugins and not trusted:
            raise UserError(
                f"{path}: brings code that would run with your rights: {names}.\nUnpack it (`unzip {quoted(path)}`), "
                "read it, and say --trust-plugins."
            )
    return folders, brought


def finished(paths: Sequence[str]) -> list[Result]:
    """Every finished cell of results folders, under each of its names.

    Raises:
        UserError: A path is no results folder, or something does not match its checksum.
    """
    if files := [path for path in paths if not Path(path).is_dir()]:
        what = "not a folder" if Path(files[0]).exists() else "not there"
        raise UserError(f"{files[0]}: {what}. Wanted: results folders, or a bundle of `fedbench pack` (.zip).")
    found = examine(paths).read(("eval", "rounds"))
    if found.wrong:
        lines = "\n  ".join(found.wrong[:20])
        raise UserError(f"checksums do not match, so that there is nothing to compare with:\n  {lines}")
    return [one for one in found.results if one.status == "finished"]


def sample(cells: Sequence[Result], count: int | None) -> list[Result]:
    """So many of them, the same whatever their order: those whose ids have the lowest hashes."""
    ids = {cell.entry.cell for cell in cells}
    chosen = set(sorted(ids, key=lambda id: hash_of_bytes(id.encode()))[:count])
    return [cell for cell in cells if cell.entry.cell in chosen]


def _refuse_itself(source: Sequence[str], results: Path) -> None:
    """Raises: UserError where the new results would lie among those they are compared with."""
    folders = [Path(path).resolve() for path in source if Path(path).is_dir()]
    if any(results.resolve() in (one, one.parent) for one in folders):
        raise UserError(f"{results} is SOURCE: choose another folder with --results DIR")


# What runs


@dataclass(frozen=True)
class Recovery:
    """What can be run here.

    Attributes:
        suites: Each with its facts and the cells of it that are run.
        cells: By name, its cell here.
        lacking: By name, why there is none.
    """

    suites: Sequence[tuple[Suite, CachedFacts, list[Cell]]]
    cells: Mapping[tuple, Cell]
    lacking: Mapping[tuple, str]


def plan_again(cells: Sequence[Result], registry: Registry, folder: Path, root: str | None = None) -> Recovery:
    """These cells as cells of suites that can be run, with the configurations that they recorded.

    Args:
        cells: Finished ones.
        registry: What is installed here.
        folder: Where the new results go.
        root: What relative roots of data begin in; where each suite was if not given.

    Raises:
        UserError: Data or weights are not here.
    """
    lacking = {name_of(cell): reason for cell in cells if (reason := _lacks(cell, registry))}
    groups: dict[tuple[str, str], list[Result]] = {}
    for cell in cells:
        if name_of(cell) not in lacking:
            groups.setdefault((cell.suite, root or _base(cell)), []).append(cell)
    suites: list[tuple[Suite, CachedFacts, list[Cell]]] = []
    found: dict[tuple, Cell] = {}
    for (name, base), members in groups.items():
        points = []
        for cell in members:
            e = cell.entry
            points.append(Point(e.scenario, e.method, e.variant, e.seed, dict(cell.manifest["config"])))
        facts = CachedFacts(registry, base)
        try:
            runnable = cells_of(points, registry, facts)
        except UserError as error:
            named = any(relative_root(cell.manifest["config"]["data"]) for cell in members)
            hint = "\n--root DIR says which folder relative roots of data begin in." if named else ""
            raise UserError(f"{error}{hint}") from error
        of_point = {id(point): cell for cell in runnable for point in cell.points}
        found |= {name_of(cell): of_point[id(point)] for cell, point in zip(members, points, strict=True)}
        suites.append((_suite(name, folder / name, points), facts, runnable))
    return Recovery(suites, found, lacking)


def _suite(name: str, path: Path, points: Sequence[Point]) -> Suite:
    """A suite of that name that reports these points."""
    scenarios, variants, methods = (
        tuple(dict.fromkeys(getattr(point, what) for point in points)) for what in ("scenario", "variant", "method")
    )
    profile, seeds = points[0].config["profile"], tuple(dict.fromkeys(point.seed for point in points))
    return Suite(name, str(path), "", profile, seeds, scenarios, variants, methods, None, (), ())


def _base(cell: Result) -> str:
    """What the relative root of a cell's data began in where it was computed; "", the current folder, for none."""
    root, there = relative_root(cell.manifest["config"]["data"]), cell.manifest.get("root")
    return str(there).removesuffix(root) if root and there else ""


def _lacks(cell: Result, registry: Registry) -> str:
    """Which component that it names is not installed; "" where all are."""
    try:
        for kind, ref in references(dict(cell.manifest["config"])):
            registry.catalogue.find(kind, str(ref["name"]))
    except UserError as error:
        return str(error)
    return ""


def settings_here(cells: Sequence[Result], plan: Recovery) -> pandas.DataFrame:
    """The versions, fingerprints and machines that are not the same here, and in how many cells."""
    mine = {name: str(value) for name, value in machine.describe("cpu").items() if name in MACHINE}
    pairs = []
    for cell in cells:
        if one := plan.cells.get(name_of(cell)):
            theirs = {name: value for name, value in (cell.manifest.get("machine") or {}).items() if name in MACHINE}
            then = {name: cell.manifest.get(name) for name in ("versions", "fingerprints")} | {"machine": theirs}
            pairs.append((then, {"versions": one.versions, "fingerprints": one.fingerprints, "machine": mine}))
    return settings(pairs)


def _run(plan: Recovery, registry: Registry, results: str, quiet: bool, given: dict[str, Any]) -> None:
    """Compute what is missing, with the bars of `fedbench run`."""
    options = Options(results=results, device=given["device"], jobs=workers(given["jobs"]))
    try:
        with raising(), Watch(Screen(), quiet) as watch, Spinner("Preparing", quiet) as spinner:

            def observe(name: str, cells: list, missing: list) -> Any:
                spinner.stop()
                return watch(name, cells, missing)

            for suite, facts, cells in plan.suites:
                with Run(suite, registry, facts, results, observe, spinner.tell) as one:
                    one.compute(cells, options)
    except Interrupted as interrupted:
        click.echo("\nInterrupted. What is finished is kept; the same command runs the rest.", err=True)
        sys.exit(interrupted.exit_code)


def computed(plan: Recovery, results: Path) -> list[Result]:
    """What has come of the cells that were run here, finished or not, by their names."""
    folders = [results / suite.name for suite, _, _ in plan.suites]
    there = examine(list(dict.fromkeys(folders))).results if folders else []
    return [one for one in there if (here := plan.cells.get(name_of(one))) and here.id == one.entry.cell]


# What is printed


def _before(source: str, cells: Sequence[Result], settings: pandas.DataFrame, plan: Recovery) -> pandas.DataFrame:
    """What is not the same here, before anything runs."""
    from fedbench.report.frames import page, records
    from fedbench.report.views.changes import changes_frame, settings_rows

    same = [] if len(settings) else ["versions, data, weights, processor and Python are those of the source"]
    by_reason: dict[str, list[str]] = {}
    for name, reason in plan.lacking.items():
        by_reason.setdefault(reason, []).append(_called(name))
    notes = [f"cannot run here: {shortened(titles, 3)}: {reason}" for reason, titles in by_reason.items()]
    title = f"{source}: {counted(len(cells), 'cell')}"
    caption = "how the shared cells were computed" if len(settings) else ""
    pages = [page(("settings",), title=title, caption=caption, notes=notes, remarks=same)]
    lacking = [{"cell": _called(name), "reason": reason} for name, reason in plan.lacking.items()]
    facts = {"source": source, "cells": len(cells), "differs_here": records(settings), "cannot_run": lacking}
    return changes_frame(settings_rows(records(settings), len(cells)), pages, [], **facts)


def _called(name: Sequence[Any]) -> str:
    """A cell for people."""
    suite, scenario, variant, method, seed = name
    return f"{suite} · {scenario} · {method}{f' [{variant}]' if variant else ''} · seed {seed}"
