"""fedbench reproduce: run again what a page or a results folder tells of, and say whether it comes out the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fedbench.commands.choices import DEVICE, FORM, JOBS, PLUGINS, Amount, workers


@click.command(short_help="Run again what a page or a results folder tells of, and compare.")
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
@click.option("--no-run", is_flag=True, help="Only say what differs here.")
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

    Suites, seeds and versions are recovered from SOURCE; what differs here is said first. A cell is equal, within seed
    noise, or different. What is finished in --results is kept. Exit code: 0 all the same or within noise, 1 something
    is different or could not be run, 2 SOURCE cannot be read, or its data are not here (--root says where).
    """
    from fedbench.commands.output import put
    from fedbench.registry.registry import Registry
    from fedbench.reproduction import again, page
    from fedbench.reproduction.source import told
    from fedbench.reproduction.verdict import DIFFERENT, NOT_RUN, verdicts

    everything = told(source)
    chosen = again.sample(_chosen(everything, scenarios, methods, seeds), count)
    folder = Path(results)
    _refuse_itself(source, folder)
    registry = Registry(plugins)
    found = again.plan(chosen, registry, folder, roots)
    settings = again.settings(chosen, found.cells)
    if no_run or form == "rich":
        lacking = [(chosen[i].title, reason) for i, reason in found.lacking.items()]
        put(page.before(", ".join(source), len(chosen), settings, lacking), form)
    if no_run:
        sys.exit(1 if found.lacking else 0)
    _run(found, registry, results, quiet or form != "rich", given)
    here = again.came_to(found, folder)
    judged = verdicts(chosen, here, everything, equivalent or 0.0)
    put(page.after(judged, settings), form)
    sys.exit(1 if any(one.called in (DIFFERENT, NOT_RUN) for one in judged) else 0)


def _refuse_itself(source: Sequence[str], results: Path) -> None:
    """Raises: UserError where the new results would lie among those they are compared with."""
    from fedbench.errors import UserError

    folders = [Path(path).resolve() for path in source if Path(path).is_dir()]
    if any(results.resolve() in (one, one.parent) for one in folders):
        raise UserError(f"{results} is SOURCE: choose another folder with --results DIR")


def _chosen(cells: Sequence[Any], scenarios: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> list[Any]:
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


def _run(found: Any, registry: Any, results: str, quiet: bool, given: dict[str, Any]) -> None:
    """Compute what is missing, with the bars of `fedbench run`."""
    from fedbench.commands.patience import Patience
    from fedbench.commands.screen import Screen
    from fedbench.commands.watch import Watch
    from fedbench.errors import Interrupted
    from fedbench.reproduction import again
    from fedbench.runs.executors.signals import raising
    from fedbench.runs.options import Options

    options = Options(results=results, device=given["device"], jobs=workers(given["jobs"]))
    try:
        with raising(), Watch(Screen(), quiet) as watch, Patience("Preparing", quiet) as patience:

            def observe(name: str, cells: list, missing: list) -> Any:
                patience.stop()
                return watch(name, cells, missing)

            again.run(found, registry, options, observe, patience.tell)
    except Interrupted as interrupted:
        click.echo("\nInterrupted. What is finished is kept; the same command runs the rest.", err=True)
        sys.exit(interrupted.exit_code)
