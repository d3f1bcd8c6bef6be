"""fedbench report: results as one page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fedbench.commands.choices import PLUGINS, Amount
from fedbench.commands.output import tell_left_out
from fedbench.commands.reading import uncollected

MARK = '<meta name="generator" content="fedbench">'  # in every page of ours, near its beginning
BEGINNING = 2000  # bytes


@click.command(short_help="Write results as one page that opens offline.")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option(
    "--output",
    "-o",
    "out",
    type=click.Path(dir_okay=False),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Where to. A report of before is replaced, another file is not.",
)
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is compared.")
@click.option("--at", default="final", show_default=True, metavar="ROUND", help="Which round counts, as in `compare`.")
@click.option("--baseline", metavar="METHOD", help="What gaps are measured to; a ceiling where there is one.")
@click.option("--equivalent", type=Amount(min=0), metavar="POINTS", help="What may be called equal.")
@click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios.")
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods.")
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points.")
@click.option("--seed", "seeds", multiple=True, type=int, metavar="N", help="Only these seeds.")
@click.option("--force", is_flag=True, help="Replace FILE whatever it is.")
@PLUGINS
def report(paths: tuple, out: str, force: bool, **asked: Any) -> None:
    """Write everything about the results under PATH (results/ if none is given) as one HTML file.

    It has the leaderboards with intervals and tie groups, curves, domains, costs, allocations, ranks, tunings, what a
    paper printed, cells without a result, and where all of it is from. It opens offline, in any browser, and fetches
    nothing. The numbers are those of `fedbench compare`.

    \b
    fedbench report results/quickstart
    fedbench report results -o all.html --at best
    fedbench report results/extreme_hetero -o hetero.html --scenario 'all_*'
    """
    file, given = Path(out), paths or ("results",)
    if not force:
        _refuse_others(file)
    tell_left_out(_written(file, given, asked))


def _written(file: Path, paths: Sequence[str], asked: dict[str, Any]) -> list[str]:
    """Put the page in its place, whole, and return what is left out of it. Raises: UserError."""
    from fedbench.disk import write_atomically
    from fedbench.report.html.render import whole_page

    with uncollected():
        text, wrong = whole_page(paths, **asked)
    page = text.encode()
    write_atomically(file, page, mend="Choose another place with -o FILE.")
    click.echo(f"{file}  {len(page) / 1e6:.2f} MB")
    return wrong


def _refuse_others(file: Path) -> None:
    """Raises: UserError where a file is there that is no report."""
    from fedbench.errors import UserError

    if file.is_file():
        with open(file, "rb") as opened:
            beginning = opened.read(BEGINNING)
        if beginning and MARK.encode() not in beginning:
            raise UserError(f"{file}: there is a file that is no report. Choose another with -o FILE, or say --force.")
    elif file.exists():
        raise UserError(f"{file}: not a file. Choose another with -o FILE.")
