"""fedbench report: results as one page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fedbench.commands.choices import BASELINE, METRIC, PATHS, PLUGINS, SELECTION, Amount, output, takes
from fedbench.commands.output import tell_left_out
from fedbench.commands.terminal import say
from fedbench.disk import write_atomically
from fedbench.errors import UserError

MARK = '<meta name="generator" content="fedbench">'  # in every page of ours, near its beginning
BEGINNING = 2000  # bytes


@click.command()
@PATHS
@output("FILE", "The file to write. An earlier report is replaced, any other file is not.", "report.html")
@METRIC
@click.option("--at", default="final", show_default=True, metavar="ROUND", help="Which round counts, as in `compare`.")
@BASELINE
@click.option(
    "--equivalent", type=Amount(min=0), metavar="POINTS", help="The margin within which methods may be called equal."
)
@takes(*SELECTION)
@click.option("--force", is_flag=True, help="Replace FILE even if it is not a report.")
@PLUGINS
def report(paths: tuple, out: str, force: bool, **asked: Any) -> None:
    """Write all tables and figures of the results under PATH (results/ if none is given) as one HTML file.

    It has the leaderboards with intervals and tie groups, curves, domains, costs, allocations, ranks, tunings, what a
    paper printed, cells without a result, and the origin of all of it. It opens offline, in any browser, and fetches
    nothing. The numbers are those of `fedbench compare`.

    \b
    fedbench report results/quickstart
    fedbench report results -o all.html
    fedbench report results/extreme_hetero -o hetero.html --scenario 'all_*'
    """
    file, given = Path(out), paths
    if not force:
        _refuse_others(file)
    tell_left_out(_written(file, given, asked))


def _written(file: Path, paths: Sequence[str], asked: dict[str, Any]) -> list[str]:
    """Put the page in its place, whole, and return what is left out of it. Raises: UserError."""
    from fedbench.report.html.page_file import whole_page

    text, wrong = whole_page(paths, **asked)
    page = text.encode()
    write_atomically(file, page, mend="Choose another place with -o FILE.")
    say(f"{file}  {len(page) / 1e6:.2f} MB")
    return wrong


def _refuse_others(file: Path) -> None:
    """Raises: UserError where a file is there that is no report."""
    if file.is_file():
        with open(file, "rb") as opened:
            beginning = opened.read(BEGINNING)
        if beginning and MARK.encode() not in beginning:
            raise UserError(f"{file}: there is a file that is no report. Choose another with -o FILE, or say --force.")
    elif file.exists():
        raise UserError(f"{file}: not a file. Choose another with -o FILE.")
