"""fedbench run: compute what a suite asks for and is not there yet."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import DEVICE, JOBS, RESULTS, SUITE, Amount, Bytes, Duration, Shard, cells, workers
from fedbench.errors import Interrupted, UserError
from fedbench.words import command_line, meant, roughly

if TYPE_CHECKING:
    from fedbench.registry.registry import Registry
    from fedbench.runner.cells import Cell
    from fedbench.runner.progress import Listen, RunSummary

TRACKERS = "fedbench.trackers"  # a group of entry points
# With one of these a shipped suite is another than the reference results are of.
CHANGING = ("sets", "scenarios", "methods", "seeds", "variants", "add", "profile", "data", "shard", "plugins")


@click.command()
@SUITE
@cells
@RESULTS
@DEVICE
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), help="Short for --set precision=...")
@click.option("--engine", type=click.Choice(["auto", "sequential", "cohort"]), help="Short for --set engine=...")
@JOBS
@click.option(
    "--executor",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Where cells run: local, ray, slurm or flower; with options as in a suite: '{name: ray, address: auto}'.",
)
@click.option(
    "--gpu-fraction",
    type=Amount(min=0, max=1, min_open=True),
    metavar="F",
    help="The share of a GPU for each cell; with 0.25 four cells share one.",
)
@click.option("--timeout", type=Duration(), metavar="DURATION", help="End a cell after this long, e.g. 90s or 2h.")
@click.option("--memory-limit", type=Bytes(), help="End a cell that takes more memory, e.g. 600MB or 4GB.")
@click.option(
    "--checkpoint",
    "checkpoint_every",
    type=Duration(zero=True),
    metavar="DURATION",
    help="How often a long cell writes a checkpoint, e.g. 5min; default: 60s, and 0 after every round.",
)
@click.option("--retry-failed", is_flag=True, help="Run cells again that failed or timed out.")
@click.option("--max-failures", type=click.IntRange(min=1), metavar="N", help="Start no more cells after N failures.")
@click.option("--force", is_flag=True, help="Run all cells again, including finished ones.")
@click.option("--shard", type=Shard(), help="Only part I of N parts of the cells; `fedbench merge` joins them.")
@click.option(
    "--tracker", "trackers", multiple=True, metavar="NAME", help="Report every round to mlflow, tensorboard or wandb."
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
def run(
    suite: str,
    plugins: tuple,
    trackers: tuple,
    precision: str | None,
    engine: str | None,
    sets: tuple,
    jobs: str,
    quiet: bool,
    as_json: bool,
    **choices,
) -> None:
    """Run every cell of SUITE that is not finished yet, and print the leaderboard.

    \b
    fedbench run suites/quickstart.yaml
    fedbench run suites/extreme_hetero.yaml --scenario 'all_*' --method fedra
    fedbench run suites/quickstart.yaml --set train.rounds=3 --results /tmp/try

    Ctrl-C lets running cells finish their round and then ends the run; a second Ctrl-C ends it at once. The same
    command resumes. Exit code: 0 if all is fine, 1 if some cells failed or are left, 2 if the input is wrong; 130 after
    Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """  # fmt: skip
    from fedbench.commands.output import Screen, Spinner
    from fedbench.commands.watch import Watch
    from fedbench.processes.signals import raising
    from fedbench.registry.registry import Registry
    from fedbench.runner import runner

    sets = (*sets, *(f"{key}={value}" for key, value in (("precision", precision), ("engine", engine)) if value))
    quiet, plugins = quiet or as_json, (*plugins, *files(trackers))
    results = Path(choices["results"])
    fresh = not results.exists()
    try:
        with raising(), Watch(Screen(), quiet) as watch, Spinner(f"Preparing {suite}", quiet) as spinner:

            def observe(name: str, cells: list, missing: list) -> Listen:
                spinner.stop()
                if fresh and missing and not quiet:
                    click.echo(_where(suite, name, results), err=True)
                return watch(name, cells, missing, "" if quiet else _takes(suite, name, cells, missing, given))

            given: dict[str, Any] = {"sets": sets, "plugins": plugins, "jobs": workers(jobs), **choices}
            outcome = runner.run(suite, observe=observe, preparing=spinner.tell, **given)
    except Interrupted as interrupted:
        with suppress(OSError):  # the terminal was closed
            _tell_how_to_resume(choices["force"], choices["results"])
        sys.exit(interrupted.exit_code)
    if as_json:
        click.echo(json.dumps(_summary(outcome), indent=1))
    sys.exit(_end(outcome, Registry(plugins), quiet))


def _where(suite: str, name: str, results: Path) -> str:
    """Where new results go; and where a folder above the suite's file, or above this one, has results of this suite."""
    from fedbench.results.index import INDEX

    here = results.resolve() / name
    new = f"Results go to {here}, which is new."
    starts = (Path.cwd(), *([Path(suite).resolve().parent] if Path(suite).is_file() else []))
    others = [above / "results" / name for start in starts for above in (start, *start.parents)]
    if there := next((other for other in others if other != here and (other / INDEX).is_file()), None):
        new += f" {there} has results of this suite; to go on there: --results {there.parent}"
    return new


def _takes(suite: str, name: str, cells: list[Cell], missing: list[Cell], given: dict[str, Any]) -> str:
    """`, about 3.2 min`, by earlier cells, or of a shipped suite as it is by the reference results; "" by neither."""
    from fedbench.runner.cells import Options
    from fedbench.runner.estimate import of_earlier_cells
    from fedbench.suite.shipped import listed

    if given["executor"] != "local":  # other machines
        return ""
    options = Options(results=given["results"], device=given["device"], jobs=given["jobs"])
    if seconds := of_earlier_cells(Path(given["results"]) / name, missing, options):
        return f", about {roughly(seconds)} by earlier cells"
    changed = any(given[key] for key in CHANGING) or options.on_gpu or suite not in listed()
    facts = {} if changed else listed()[suite]
    if facts.get("seconds") and len(missing) == len(cells) == facts["cells"]:
        return f", about {roughly(facts['seconds'])} on two cores of the machine of the reference results"
    return ""


def _tell_how_to_resume(force: bool, results: str) -> None:
    """Print the command that resumes: as it was typed, but for --force, which would compute every cell again."""
    words = [word for word in sys.argv[1:] if word != "--force"]
    again = (
        "\nWith --force it would start over; cells that it had not reached keep their former results." if force else ""
    )
    click.echo(
        "\nInterrupted. What is finished is kept; this runs the rest:\n"
        f"  {command_line(['fedbench', *words])}{again}\n"
        f"`{command_line(['fedbench', 'compare', results])}` shows what is there so far.",
        err=True,
    )


def _end(outcome: RunSummary, registry: Registry, quiet: bool) -> int:
    """Print what came out, and the plugins that failed. Returns the exit code."""
    from fedbench.commands.output import warn_of_lost
    from fedbench.commands.watch import show_end

    if not quiet:
        show_end(outcome, registry.catalogue.roles)
    lost = warn_of_lost(registry)
    return 1 if outcome.failed or outcome.left or outcome.undecided or lost else 0


def _summary(outcome: RunSummary) -> dict:
    return {
        "suite": outcome.suite,
        "folder": str(outcome.folder),
        "ran": outcome.ran,
        "seconds": round(outcome.seconds, 3),
        "counts": dict(outcome.counts),
        "left": outcome.left,
        **({"undecided": list(outcome.undecided)} if outcome.undecided else {}),
        **({"unstable": list(outcome.unstable)} if outcome.unstable else {}),
        "failed": {name: manifest["reason"] for name, manifest in outcome.failed.items()},
    }


def files(names: Sequence[str]) -> list[str]:
    """The plugin files of these trackers, which a run loads like those of `--plugin`.

    Trackers are entry points of the group `fedbench.trackers`. NEEDS in one names a package that must be installed.

    Raises:
        UserError: for a tracker, or a package it needs, that is not installed.
    """
    from fedbench.registry import installed

    known, _ = installed.by_name(TRACKERS)
    found = []
    for name in dict.fromkeys(names):
        point = known.get(name)
        if point is None:
            raise UserError(f"--tracker {name}: no such tracker; {meant(name, known, f'there are: {sorted(known)}')}")
        file = installed.origin(point.module)
        if file is None:
            raise UserError(f"--tracker {name} does not load: there is no module {point.module}")
        needed = _needed(file)
        if needed and find_spec(needed) is None:
            ours = point.dist if installed.package_of(point) == installed.OURS else None
            extras = (ours and ours.metadata.get_all("Provides-Extra")) or []
            package = f"'fedbench-heft[{name}]'" if name in extras else needed
            raise UserError(f"--tracker {name} needs {needed}: pip install {package}")
        found.append(file)
    return found


def _needed(file: str) -> str:
    """The value of NEEDS in a module, read without importing it; "" without one."""
    try:
        module = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):  # reported where it is imported
        return ""
    for one in module.body:
        if isinstance(one, ast.Assign) and [getattr(target, "id", "") for target in one.targets] == ["NEEDS"]:
            return str(getattr(one.value, "value", ""))
    return ""
