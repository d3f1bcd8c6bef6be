"""fedbench reproduce: run the cells of a page or a results folder again, and compare each."""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ruamel.yaml import YAML

from fedbench import machine
from fedbench.commands.choices import DEVICE, FORM, JOBS, PLUGINS, SELECTION, Amount, takes, workers
from fedbench.commands.output import Screen, Spinner, put
from fedbench.commands.watch import Watch
from fedbench.data.sources import relative_root
from fedbench.disk import hash_of_bytes, write_atomically
from fedbench.errors import Interrupted, UserError
from fedbench.processes.signals import raising
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.report.html.origin import read_page
from fedbench.results import examine
from fedbench.results.diff import DIFFERENT, CellSummary, diff, settings
from fedbench.runner import runner
from fedbench.runner.cells import Cell, Options, cells_of, references
from fedbench.runner.runner import Run
from fedbench.suite import Point, Suite
from fedbench.types import SIZES
from fedbench.words import counted, shortened, visible

if TYPE_CHECKING:
    import pandas

    from fedbench.report.frames import Frame

MACHINE = ("cpu", "system", "python")  # what of a machine may change a result, and is known before the run
OF_POINTS = ("method", "seed", "profile")  # of a configuration, what no scenario holds
FULL = 50  # scenarios, and methods, of one recovered suite: more go into another file


@click.command()
@click.argument("source", nargs=-1, required=True, type=click.Path(), metavar="SOURCE...")
@click.option("--cells", "count", type=click.IntRange(min=1), metavar="N", help="Only so many cells, a sample.")
@takes(*SELECTION)
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
    variants: tuple,
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
    from fedbench.report.changes import NOT_RUN, verdicts

    everything = read_source(source)
    chosen = sample(_chosen(everything, seeds, scenario=scenarios, method=methods, variant=variants), count)
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
    chosen = set(sorted({cell.id for cell in cells}, key=lambda id: hash_of_bytes(id.encode()))[:count])
    return [cell for cell in cells if cell.id in chosen]


def _chosen(cells: Sequence[CellSummary], seeds: Sequence[int], **globs: Sequence[str]) -> list[CellSummary]:
    """The cells that match. globs: patterns of `scenario`, `method` and `variant`. Raises UserError where none does."""
    found = [
        cell
        for cell in cells
        if (not seeds or cell.seed in seeds)
        and all(not some or any(fnmatchcase(getattr(cell, what), one) for one in some) for what, some in globs.items())
    ]
    if not found:
        raise UserError("no finished cell of SOURCE is asked for" if cells else "SOURCE has no finished cell")
    return found


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
        suites: Each as it was read, with its assets and the cells of it that are run.
        cells: By name, its cell here.
        lacking: By name, why there is none.
    """

    suites: Sequence[tuple[Suite, Assets, list[Cell]]]
    cells: Mapping[tuple, Cell]
    lacking: Mapping[tuple, str]


def plan_again(cells: Sequence[CellSummary], registry: Registry, folder: Path, roots: Sequence[str] = ()) -> Recovery:
    """Recover the suites of these cells into files in the folder, and read them like any suite.

    Raises:
        UserError: A suite cannot be read, or data or weights are not here.
    """

    lacking = {cell.name: reason for cell in cells if (reason := _lacks(cell, registry))}
    known = [cell for cell in cells if cell.name not in lacking]
    here = places(known, roots)
    suites: list[tuple[Suite, Assets, list[Cell]]] = []
    found: dict[tuple, Cell] = {}
    other = "this fedbench reads another configuration"
    for number, one in enumerate(recovered(known), 1):
        file = folder / f"recovered-{number}.yaml"
        write_atomically(file, one.text().encode())
        suite = runner.load(file, registry, roots=here)
        points = list(one.points(suite))
        lacking |= {cell.name: f"{other}: {', '.join(keys)}" for cell, _, keys in points if keys}
        assets = Assets(registry, here)
        runnable = cells_of([point for _, point, keys in points if not keys], registry, assets)
        of_point = {id(point): cell for cell in runnable for point in cell.points}
        found |= {cell.name: of_point[id(point)] for cell, point, keys in points if not keys}
        if runnable:
            suites.append((suite, assets, runnable))
    return Recovery(suites, found, lacking)


def _lacks(cell: CellSummary, registry: Registry) -> str:
    """Which component that it names is not installed; "" where all are."""

    try:
        for kind, ref in references(dict(cell.manifest["config"])):
            registry.catalogue.find(kind, str(ref["name"]))
    except UserError as error:
        return str(error)
    except (KeyError, TypeError) as error:
        raise UserError(f"{_called(cell.name)}: not a configuration of fedbench ({error!r:.80})") from error
    return ""


def settings_here(cells: Sequence[CellSummary], plan: Recovery) -> pandas.DataFrame:
    """The versions, fingerprints and machines that are not the same here, and in how many cells."""

    mine = {name: str(value) for name, value in machine.describe("cpu").items() if name in MACHINE}
    pairs = []
    for cell in cells:
        if one := plan.cells.get(cell.name):
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

            for suite, assets, cells in plan.suites:
                one = Run.prepare(suite, cells, registry, assets, options, preparing=spinner.tell)
                one.close(one.compute(observe))
    except Interrupted as interrupted:
        click.echo("\nInterrupted. What is finished is kept; the same command runs the rest.", err=True)
        sys.exit(interrupted.exit_code)


def computed(cells: Sequence[CellSummary], plan: Recovery, results: Path) -> list[CellSummary]:
    """These cells as they came out here; of those without a result with the reason."""

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


# Suites of cells, and where their data are


@dataclass
class Recovered:
    """A suite recovered from configurations. Names are kept; other content under a known name gets a number behind it.

    Attributes:
        scenarios: By name, as JSON.
        methods: By name, as JSON.
        cells: By (scenario, method, seed) of the recovered suite, the cells it is for.
    """

    name: str
    profile: str
    scenarios: dict[str, str] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    cells: dict[tuple[str, str, int], list[CellSummary]] = field(default_factory=dict)

    def takes(self, cell: CellSummary) -> bool:
        """Enter a cell; False where there is no more room."""
        config = cell.manifest["config"]
        sized = tuple(SIZES) if "devices" in config else ()  # these follow from those, and a suite may have one
        settings = {key: value for key, value in config.items() if key not in (*OF_POINTS, *sized)}
        scenario = _entered(self.scenarios, cell.scenario, settings)
        label = _entered(self.methods, cell.method, config["method"])
        if scenario and label:
            self.cells.setdefault((scenario, label, cell.seed), []).append(cell)
        return bool(scenario and label)

    def text(self) -> str:
        """The suite as YAML."""
        methods = [
            {**method, "name": label, **({} if label == method["name"] else {"extends": method["name"]})}
            for label, method in ((label, json.loads(text)) for label, text in self.methods.items())
        ]
        tree = {
            "suite": self.name,
            "description": "Recovered by `fedbench reproduce` from the configurations of cells.",
            "profile": self.profile,
            "seeds": sorted({seed for _, _, seed in self.cells}),
            "scenarios": {name: json.loads(settings) for name, settings in self.scenarios.items()},
            "methods": methods,
        }
        yaml, out = YAML(), io.StringIO()
        yaml.width = 110
        yaml.representer.ignore_aliases = lambda _: True
        yaml.dump(tree, out)
        return out.getvalue()

    def points(self, suite: Suite) -> Iterator[tuple[CellSummary, Point, list[str]]]:
        """Each cell with its point of the suite, once it is read, and the keys that this fedbench reads otherwise."""
        for point in suite.points():
            for cell in self.cells.get((point.scenario, point.method, point.seed), ()):
                own = replace(point, scenario=cell.scenario, variant=cell.variant, method=cell.method)
                yield cell, own, _differing(cell.manifest["config"], point.config)


def recovered(cells: Iterable[CellSummary]) -> list[Recovered]:
    """The suites that hold these cells: one for each name and profile, or several where there is much."""
    found: list[Recovered] = []
    for cell in cells:
        place = (cell.suite, cell.manifest["config"]["profile"])
        if not any(one.takes(cell) for one in found if (one.name, one.profile) == place):
            found.append(Recovered(*place))
            found[-1].takes(cell)
    return found


def _entered(known: dict[str, str], name: str, content: Mapping[str, Any]) -> str:
    """The name under which the content is known, entered where it was not; "" where there is no more room."""
    text, number, free = json.dumps(content, sort_keys=True), 1, name
    while free in known and known[free] != text:
        number += 1
        free = f"{name}.{number}"
    if free not in known and len(known) >= FULL:
        return ""
    known[free] = text
    return free


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    texts = [{key: json.dumps(value, sort_keys=True) for key, value in config.items()} for config in (one, other)]
    return [key for key in {**one, **other} if texts[0].get(key) != texts[1].get(key)]


def places(cells: Sequence[CellSummary], given: Sequence[str] = ()) -> dict[str, str]:
    """The whole path of each root that these cells name.

    The root is part of a cell's identity and stays as it is; where it lies depends on this machine. A results folder
    records where a relative one was. A page is untrusted: only what lies in the current folder is read, unless --root
    names it.

    Args:
        cells: The cells.
        given: `DIR` of the only root, or `THERE=DIR`, as on the command line.

    Raises:
        UserError: A root is not here, or only --root may say where it is.
    """
    named: dict[str, list[CellSummary]] = {}
    for cell in cells:
        data = cell.manifest["config"]["data"]  # of a page, and not read yet
        if isinstance(data, Mapping) and isinstance(root := data.get("root"), str) and root:
            named.setdefault(root, []).append(cell)
    set_by_user = _roots(given, named)
    found, faults = {}, []
    for root, those in named.items():
        try:
            found[root] = set_by_user[root] if root in set_by_user else _place(root, those)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return found


def _roots(given: Sequence[str], named: Mapping[str, object]) -> dict[str, str]:
    """By root, what --root sets. Raises: UserError."""
    found: dict[str, str] = {}
    for text in given:
        there = next((root for root in named if text.startswith(f"{root}=")), None)
        if there is None and len(named) != 1:
            roots = f"{counted(len(named), 'root')}: {shortened(list(map(visible, named)))}" if named else "no root"
            raise UserError(f"--root {text}: say THERE=DIR; SOURCE names {roots}")
        here = text if there is None else text.removeprefix(f"{there}=")
        place = os.path.join(os.getcwd(), os.path.expanduser(here))
        if not os.path.exists(place):
            raise UserError(f"--root {text}: {place} does not exist")
        found[there or next(iter(named))] = place
    return found


def _place(root: str, cells: Sequence[CellSummary]) -> str:
    """Where a root is that --root does not set. Raises: UserError."""
    way = f"say where the data are: --root {visible(root)}=DIR"
    relative = relative_root({"root": root}) is not None
    if any(cell.root is None for cell in cells) and (not relative or ".." in Path(root).parts):
        raise UserError(f"SOURCE names data in {visible(root)}, which a page is not followed to; {way}")
    there = {cell.root for cell in cells if relative and cell.root and os.path.exists(cell.root)}
    if len(there) > 1:
        both = " and ".join(sorted(there)[:2])
        raise UserError(f"SOURCE means several folders by {visible(root)}, such as {both}; {way}")
    place = next(iter(there), os.path.join(os.getcwd(), os.path.expanduser(root)))
    if not os.path.exists(place):
        raise UserError(f"SOURCE names data in {visible(root)}, and {visible(place)} does not exist; {way}")
    return place


# What is printed


def _before(source: str, cells: Sequence[CellSummary], settings: pandas.DataFrame, plan: Recovery) -> Frame:
    """What is not the same here, before anything runs."""
    from fedbench.report.changes import changes_frame, settings_rows
    from fedbench.report.frames import page

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

    counts = Counter(found.verdict)
    sums = ", ".join(f"{counts[name]} {name}" for name in ORDER[::-1] if counts[name])
    title = f"{counted(len(found), 'cell')}: {sums}"
    if not people:
        same = not counts[DIFFERENT] and not counts[NOT_RUN]
        differs = settings.to_dict("records")
        rows: list[Any] = found.to_dict("records")
        return frame(
            rows, list(found.columns), caption=title, by=(), reproduced=same, counts=dict(counts), differs_here=differs
        )
    more = [f"{counted(len(found) - MOST, 'more cell')}: csv and json have all"] if len(found) > MOST else []
    pages = [page(("cells",), title=title, notes=reasons(found, _called), remarks=more)]
    return changes_frame(verdict_rows(found[:MOST], _called), pages, NOISE_LEGEND)


def _called(name: Sequence[Any]) -> str:
    """A cell for people."""
    suite, scenario, variant, method, seed = name
    return f"{suite} · {scenario} · {method}{f' [{variant}]' if variant else ''} · seed {seed}"
