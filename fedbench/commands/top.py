"""fedbench top: what runs are doing in a results folder, seen from another terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import Amount

if TYPE_CHECKING:
    from rich.text import Text

    from fedbench.results.live import Live

SILENT = 90.0  # seconds without a round after which it is said how long it has been
MOST = 40  # cells of a run


@click.command(short_help="Watch the runs in a results folder.")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--every", type=Amount(min=0.2), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Look once; so it does where output is piped.")
@click.option("--json", "as_json", is_flag=True, help="Print what is at work as JSON, once.")
def top(paths: tuple, every: float, once: bool, as_json: bool) -> None:
    """Show the runs that are at work under PATH (results/ if none is given), until the last has ended or Ctrl-C.

    \b
    fedbench top
    fedbench top results/quickstart --once

    It reads files that a run keeps anyway, takes no lock, and may look from another machine that shares the folder.
    """  # fmt: skip
    from rich.console import Group
    from rich.live import Live as Shown

    from fedbench.commands.screen import Screen
    from fedbench.results.live import runs_in, suites_in

    given = paths or ("results",)
    console = Screen()

    def look() -> list[Live]:
        return runs_in(suites_in(given))

    if as_json:
        click.echo(json.dumps([_record(run) for run in look()], indent=1))
        return
    found = look()
    if found and console.is_terminal and not once:
        with Shown(console=console, auto_refresh=False, transient=True) as screen:
            while found:
                screen.update(Group(*drawn(found, console.width)), refresh=True)
                time.sleep(every)
                found = look()
    for line in drawn(found, console.width):
        console.print(line, soft_wrap=True)
    if not found:
        _tell_what_is_there(given)


def _tell_what_is_there(paths: Sequence[str]) -> None:
    """No run is at work: what is done."""
    from collections import Counter

    from fedbench.errors import UserError
    from fedbench.results import examine
    from fedbench.results.kept import Keeping

    click.echo(f"No run is at work in {', '.join(paths)}.")
    try:
        found = examine(paths, keeping=Keeping())
    except UserError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    by_suite: dict[str, Counter[str]] = {}
    for result in {(r.suite, r.entry.cell): r for r in (*found.results, *found.undecided)}.values():
        by_suite.setdefault(result.suite, Counter())[result.status] += 1
    for suite, counts in by_suite.items():
        click.echo(f"{suite}: {_counts(counts)}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {status.replace('_', ' ')}" for status, n in counts.items()) or "nothing yet"


def drawn(runs: Sequence[Live], width: int) -> list[Text]:
    """Lines of at most `width` columns: for each run one of all, then one for each cell at work."""
    from rich.text import Text

    from fedbench.words import told_apart

    lines = []
    for run in runs:
        told = run.told
        ended = sum(told["ended"].values())
        lines.append(Text(f"{told['suite']}: {_state(run)}"[:width], style="bold"))
        also = f", {told['kept']:,} kept from before" if told["kept"] else ""
        odd = {status: n for status, n in told["ended"].items() if status != "finished"}
        counts = f" {ended:,} of {told['cells']:,} cells done{also}" + (f" ({_counts(odd)})" if odd else "")
        lines.append(Text(counts[:width]))
        cells = told["at"][:MOST]
        wide = len(f"{told['rounds']}/{told['rounds']}")
        room = min(max(10, width - wide - 38), max(len(cell["title"]) for cell in [{"title": "all rounds"}, *cells]))
        lines.append(_line(room, wide, "all rounds", told["done"], told["rounds"], "", told["rate"], told["left"]))
        titles = told_apart([cell["title"] for cell in cells], [room] * len(cells))
        for title, cell in zip(titles, cells, strict=True):
            numbers = (cell["round"], cell["rounds"], _score(cell), cell["rate"], cell["left"])
            lines.append(_line(room, wide, title, *numbers))
        if len(told["at"]) > MOST:
            lines.append(Text(f" and {len(told['at']) - MOST:,} more cells"))
    return lines


def _line(
    room: int, wide: int, title: str, done: int, of: int, score: str, rate: float | None, left: float | None
) -> Text:
    """A title of `room` columns, rounds of `wide`, and in 38 more share, score, images a second, time left."""
    from rich.text import Text

    from fedbench.words import per_second, roughly

    share = f"{100 * done / of:3.0f}%" if of else ""
    lasts = f"{roughly(left)} left" if left is not None else ""
    return Text.assemble(
        f" {title:<{room}} ", f"{f'{done}/{of}':>{wide}} ", (f"{share:>4} ", "dim"), (f"{score:>6} ", "green"),
        (f"{per_second(rate):>9} ", "cyan"), f"{lasts:>13}",
    )  # fmt: skip


def _score(cell: Mapping[str, Any]) -> str:
    from fedbench.commands.watch import scored

    return scored(cell["score"], cell["metric"])


def _state(run: Live) -> str:
    """Whether it is alive, and where."""
    from fedbench.words import duration

    process = run.told["process"]
    where = f"process {process.get('pid')} on {process.get('host')}"
    if run.gone:
        return f"{where} has ended without a word; `fedbench run` goes on"
    return where + (f", no round for {duration(run.silent)}" if run.silent > SILENT else "")


def _record(run: Live) -> dict[str, Any]:
    return {"folder": str(run.folder), "silent": round(run.silent, 1), "gone": run.gone, **run.told}
