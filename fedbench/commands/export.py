"""fedbench export: a finished cell's model, for other libraries."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from fedbench.commands.choices import PLUGINS, RESULTS, FilePath, gone, output, results_of
from fedbench.commands.output import Screen
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.words import counted, suggestion


@click.command()
@click.argument("cell", type=FilePath(), metavar="CELL|SUITE")
@click.argument("method", required=False)
@click.option("--seed", type=int, metavar="N", help="The seed of METHOD; by default the first that has finished.")
@click.option("--scenario", metavar="NAME", help="The scenario of METHOD, if it has finished several.")
@click.option("--variant", metavar="NAME", help="The variant of METHOD, if it has finished several.")
@RESULTS
@click.option(
    "--format",
    "form",
    type=click.Choice(["peft", "loralib", "merged"]),
    required=True,
    help="peft, loralib: adapters and head; merged: a plain model.",
)
@output("DIR", "Where to; by default a folder here, named after cell and format.")
@gone("--out", "it is called -o or --output now")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@PLUGINS
def export(
    cell: str,
    method: str | None,
    seed: int | None,
    scenario: str | None,
    variant: str | None,
    results: str,
    form: str,
    out: str | None,
    force: bool,
    plugins: tuple,
) -> None:
    """Write the model of CELL, the folder of a finished cell, or that of a METHOD in the results of SUITE, for another
    library.

    \b
    fedbench export quickstart fedra --format peft
    fedbench export extreme_hetero fedra --scenario all_6 --seed 0 --format peft
    fedbench export results/quickstart/cells/4534df823ed3 --format loralib

    The cell's images are not needed. A cell that has no model yet (no `state.json`) gets one by `fedbench run --force`.
    """  # fmt: skip
    cell = results_of(cell, results)
    if method is not None:
        asked = {"seed": seed, "scenario": scenario, "variant": variant}
        cell, name = _found(Path(cell), method, asked)
    else:
        name = Path(cell).resolve().name
    from fedbench.export import export as write

    written = write(cell, form, out or f"{name}-{form}", Registry(plugins), force)
    console = Screen()
    for name, size in written.files.items():
        console.print(Text(f"{size:>12,} bytes  {written.folder / name}"), soft_wrap=True)
    if written.note:
        console.print(Text(written.note, style="yellow"), soft_wrap=True)
    console.print(Text(f"\nTo load it:\n\n{written.loading}"), soft_wrap=True)


def _found(suite: Path, method: str, asked: dict[str, int | str | None]) -> tuple[str, str]:
    """The folder of the one finished cell of a method that answers to what is asked, and a name for its export.

    Raises UserError where there is none, or where there are several.
    """
    from fedbench.results import load

    results = [result for result in load([suite]) if result.entry.candidate is None]
    known = dict.fromkeys(result.entry.method for result in results)
    if method not in known:
        raise UserError(f"{suite}: no method is called {method!r}{suggestion(method, known, 'there are')}")
    left = [result for result in results if result.entry.method == method and result.status == "finished"]
    if not left:
        raise UserError(f"{suite}: no cell of {method} has finished; `fedbench plan` says what is to run")
    for key, value in asked.items():
        there = sorted({getattr(result.entry, key) for result in left})
        if value is None and key != "seed" and len(there) > 1:
            raise UserError(f"{suite}: {method} has {counted(len(there), key)}; choose --{key}: {', '.join(there)}")
        chosen = there[0] if value is None else value
        if chosen not in there:
            raise UserError(f"--{key} {value}: {method} has finished {', '.join(map(str, there))}")
        left = [result for result in left if getattr(result.entry, key) == chosen]
    return str(left[0].folder), f"{suite.name}-{method.replace('/', '-')}-{left[0].entry.seed}"
