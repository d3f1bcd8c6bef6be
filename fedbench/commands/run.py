"""fedbench run: compute what a suite asks for and is not there yet."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import DEVICE, JOBS, RESULTS, SUITE, Amount, Bytes, Shard, cells, workers
from fedbench.commands.output import tell_left_out
from fedbench.errors import Interrupted
from fedbench.processes.signals import raising

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from fedbench.registry.registry import Registry
    from fedbench.results import Found
    from fedbench.runner.progress import Listen, RunSummary

MOST_SHOWN = 10  # failures listed at the end of a run


@click.command(short_help="Run a suite; what is finished is kept.")
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
    help="Where cells run: local, ray or slurm; with options as in a suite: '{name: ray, address: auto}'.",
)
@click.option(
    "--gpu-fraction",
    type=Amount(min=0, max=1, min_open=True),
    metavar="F",
    help="The share of a GPU for each cell; 0.25: four cells share one.",
)
@click.option("--timeout", type=Amount(min=0, min_open=True), metavar="SECONDS", help="End a cell after this long.")
@click.option("--memory-limit", type=Bytes(), help="End a cell that takes more memory, e.g. 600MB or 4GB.")
@click.option(
    "--checkpoint",
    "checkpoint_every",
    type=Amount(min=0),
    metavar="SECONDS",
    help="Keep what a long cell has computed this often; default: 60, and 0 after every round.",
)
@click.option("--retry-failed", is_flag=True, help="Run cells again that failed or timed out before.")
@click.option("--max-failures", type=click.IntRange(min=1), metavar="N", help="Start no more cells after N failures.")
@click.option("--force", is_flag=True, help="Run finished cells again too.")
@click.option("--shard", type=Shard(), help="Only the I-th of N parts of the cells; `fedbench merge` joins them.")
@click.option(
    "--tracker", "trackers", multiple=True, metavar="NAME", help="Who is told of every round: mlflow, tensorboard."
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

    Ctrl-C lets running cells finish their round and ends the run, a second one ends it at once; the same command goes
    on from there. Exit code: 0 all fine, 1 some cells failed or are left over, 2 the input is wrong; 130 ended by
    Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
    """  # fmt: skip
    from fedbench.commands.screen import Screen, Spinner
    from fedbench.commands.trackers import files
    from fedbench.commands.watch import Watch
    from fedbench.registry.registry import Registry
    from fedbench.runner import runner

    sets = (*sets, *(f"{key}={value}" for key, value in (("precision", precision), ("engine", engine)) if value))
    quiet, plugins = quiet or as_json, (*plugins, *files(trackers))
    try:
        with raising(), Watch(Screen(), quiet) as watch, Spinner(f"Preparing {suite}", quiet) as spinner:

            def observe(name: str, cells: list, missing: list) -> Listen:
                spinner.stop()
                return watch(name, cells, missing)

            given: dict[str, Any] = {"sets": sets, "plugins": plugins, "jobs": workers(jobs), **choices}
            outcome = runner.run(suite, observe=observe, preparing=spinner.tell, **given)
    except Interrupted as interrupted:
        with suppress(OSError):  # the terminal was closed
            _tell_how_to_resume(choices["force"], choices["results"])
        sys.exit(interrupted.exit_code)
    if as_json:
        click.echo(json.dumps(_summary(outcome), indent=1))
    sys.exit(_end(outcome, Registry(plugins), quiet))


def _tell_how_to_resume(force: bool, results: str) -> None:
    """The command that goes on: as it was typed, but for --force, which would begin anew with every cell."""
    words = [word for word in sys.argv[1:] if word != "--force"]
    anew = "\nWith --force it would begin anew; what that had not got to keeps its former result." if force else ""
    click.echo(
        "\nInterrupted. What is finished is kept; this runs the rest:\n"
        f"  {shlex.join(['fedbench', *words])}{anew}\n"
        f"`{shlex.join(['fedbench', 'compare', results])}` shows what is there so far.",
        err=True,
    )


def _end(outcome: RunSummary, registry: Registry, quiet: bool) -> int:
    """Print what came out, and the plugins that failed. Returns the exit code."""
    from fedbench.commands.output import warn_of_lost

    if not quiet:
        _close(outcome, registry.catalogue.roles)
    lost = warn_of_lost(registry)
    return 1 if outcome.failed or outcome.left or outcome.undecided or lost else 0


def _close(outcome: RunSummary, roles: dict[str, str]) -> None:
    """The leaderboards, or a summary of many, and what to do next."""
    from rich.text import Text

    from fedbench.commands.output import wide
    from fedbench.commands.screen import Screen
    from fedbench.commands.watch import left_out
    from fedbench.report.render import show
    from fedbench.report.tuning import undecided
    from fedbench.report.views import chosen
    from fedbench.results.expected import read_expected
    from fedbench.results.metric_direction import first_metric
    from fedbench.words import counted, duration

    console = Screen(width=wide())
    console.print(
        f"{counted(outcome.ran, 'cell')} in {duration(outcome.seconds)}"
        + (f", {len(outcome.elsewhere)} by other runs" if outcome.elsewhere else "")
        + (f", {outcome.kept} kept from before" if outcome.kept else "")
    )
    there = _read(outcome.folder)
    results = there.results
    firsts = [first_metric(r.manifest["config"]["evaluation"]) for r in results if r.status == "finished"]
    metric = "accuracy" if "accuracy" in firsts or not firsts else firsts[0]
    if firsts:
        console.print()
        show(chosen(results, metric=metric, roles=roles), console)
        console.print()
    compare = shlex.join(["fedbench", "compare", str(outcome.folder)])
    again = compare + ("" if metric == "accuracy" else f" --metric {shlex.quote(metric)}")
    console.print(f"Results: {outcome.folder}    Again: {again}", soft_wrap=True)
    if read_expected(outcome.folder):
        console.print(f"Beside the paper: {compare} --paper", soft_wrap=True)
    spoke = _list_printed(console, outcome)
    for event in outcome.left_out:
        console.print(Text(left_out(event), style="yellow"), soft_wrap=True)
    if outcome.failed:
        _list_failed(console, outcome, spoke)
    for which in outcome.undecided:
        told = f"No candidate has a validation score, and so nothing is reported: {which}"
        console.print(Text(told, style="red"), soft_wrap=True)
    if outcome.left:
        broken_off = "Broken off from outside" if outcome.counts["interrupted"] else "Ended before all was computed"
        why = "Stopped by --max-failures" if outcome.gave_up else broken_off
        left = counted(outcome.left, "cell")
        console.print(f"{why}; {left} left, which the same command runs.", style="red")
    tell_left_out(there.wrong, undecided(there, [outcome.folder]))


def _read(folder: Path) -> Found:
    from fedbench.results import examine
    from fedbench.results.result import COMPARED

    return examine([folder]).read(COMPARED)


def _list_printed(console: Console, outcome: RunSummary) -> set[str]:
    """The names of the cells that printed anything. Finished ones are counted on the console."""
    from rich.text import Text

    from fedbench.results.identity import id_in
    from fedbench.results.index import CELLS
    from fedbench.results.store import cell_folders
    from fedbench.runner.local import OUTPUT
    from fedbench.words import counted

    places = cell_folders(outcome.folder)
    spoke = {name for name in outcome.manifests if (places(id_in(name)) / OUTPUT).is_file()}
    if quietly := spoke - outcome.failed.keys():
        told = f"{counted(len(quietly), 'finished cell')} printed something: {outcome.folder}/{CELLS}/*/{OUTPUT}"
        console.print(Text(told, style="dim"), soft_wrap=True)
    return spoke


def _list_failed(console: Console, outcome: RunSummary, spoke: set[str]) -> None:
    """Where the reasons of the first failures stand, or the reason where it could not be written down.

    spoke: the cells that printed anything.
    """
    from rich.text import Text

    from fedbench.results.identity import id_in
    from fedbench.results.manifest import read_manifest
    from fedbench.results.store import cell_folders
    from fedbench.runner.local import OUTPUT
    from fedbench.words import counted

    number = counted(len(outcome.failed), "cell")
    console.print(f"{number} failed; `--retry-failed` runs failed cells again:", style="red")
    for name in list(outcome.failed)[:MOST_SHOWN]:
        also = f", {OUTPUT}" if name in spoke else ""
        place, failed = cell_folders(outcome.folder)(id_in(name)), outcome.failed[name]
        written = (read_manifest(place) or {}).get("status") == failed["status"]
        told = f"{place / 'manifest.json'}{also}" if written else failed["reason"]
        console.print(Text(f"  {outcome.titles[name]}: {told}"), soft_wrap=True)
    if (left := len(outcome.failed) - MOST_SHOWN) > 0:
        console.print(f"  and {left} more")


def _summary(outcome: RunSummary) -> dict:
    return {
        "suite": outcome.suite,
        "folder": str(outcome.folder),
        "ran": outcome.ran,
        "elsewhere": len(outcome.elsewhere),
        "seconds": round(outcome.seconds, 3),
        "counts": dict(outcome.counts),
        "left": outcome.left,
        **({"undecided": list(outcome.undecided)} if outcome.undecided else {}),
        **({"left_out": outcome.left_out} if outcome.left_out else {}),
        "failed": {name: manifest["reason"] for name, manifest in outcome.failed.items()},
    }
