"""fedbench report: results as one page that opens offline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from fedbench.commands.choices import PLUGINS, Amount
from fedbench.commands.output import tell_left_out
from fedbench.commands.reading import VERIFY, keeping, uncollected

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
@click.option("--watch", is_flag=True, help="Write it anew whenever a cell ends, until Ctrl-C.")
@click.option("--every", type=Amount(min=0.2), default=2.0, show_default=True, help="Seconds between looks.")
@VERIFY
@PLUGINS
def report(paths: tuple, out: str, force: bool, watch: bool, every: float, verify: bool, **asked: Any) -> None:
    """Write everything about the results under PATH (results/ if none is given) as one HTML file.

    It has the leaderboards with intervals and tie groups, curves, domains, costs, allocations, ranks, tunings, what a
    paper printed, cells without a result, and where all of it is from. It opens offline, in any browser, and fetches
    nothing. The numbers are those of `fedbench compare`.

    \b
    fedbench report results/quickstart
    fedbench report results -o all.html --at best
    fedbench report results/extreme_hetero -o hetero.html --scenario 'all_*'
    fedbench report results/quickstart --watch
    """
    file, given = Path(out), paths or ("results",)
    if not force:
        _refuse_others(file)
    if watch:
        _watch(file, given, every, asked, verify)
        return
    tell_left_out(_written(file, given, asked, verify))


def _written(file: Path, paths: Sequence[str], asked: dict[str, Any], verify: bool) -> list[str]:
    """Put the page in its place, whole, and return what is left out of it. Raises: UserError."""
    from fedbench.disk import write_atomically
    from fedbench.report.html.whole import whole_page

    with uncollected(), keeping(verify) as kept:
        text, wrong = whole_page(paths, **asked, keeping=kept)
    page = text.encode()
    write_atomically(file, page, mend="Choose another place with -o FILE.")
    click.echo(f"{file}  {len(page) / 1e6:.2f} MB")
    return wrong


def _watch(file: Path, paths: Sequence[str], every: float, asked: dict[str, Any], verify: bool) -> None:
    """Write the page, and again whenever a manifest has changed, until Ctrl-C. What there is to say about results that
    cannot be shown yet is said once."""
    from fedbench.errors import UserError

    before, said = None, ""
    with suppress(KeyboardInterrupt):
        while True:
            if (now := _manifests(paths)) != before:
                before = now
                try:
                    _written(file, paths, asked, verify)
                except UserError as error:  # nothing has ended yet, or the run is just writing
                    if (told := str(error).partition("\n")[0]) != said:
                        click.echo(f"{told}; waiting", err=True)
                        said = told
            time.sleep(every)


def _manifests(paths: Sequence[str]) -> dict[str, int]:
    """When each manifest was written; a look that costs little."""
    found = {}
    for path in paths:
        for file in (f for level in ("", "*/", "*/*/") for f in Path(path).glob(f"{level}manifest.json")):
            with suppress(OSError):
                found[str(file)] = file.stat().st_mtime_ns
    return found


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
