"""fedbench pack: finished cells become rows of their suite's tables."""

from __future__ import annotations

from pathlib import Path

import click

from fedbench.errors import UserError
from fedbench.results.index import INDEX, MAKE_SOME
from fedbench.results.pack import pack as pack_suite
from fedbench.words import counted


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="DIR...")
def pack(paths: tuple) -> None:
    """Pack the finished cells of every DIR, a results folder or a suite's folder in one, into a few Parquet files.

    A run does this by itself when it ends. By hand it is for results of a run that was killed, or of an older fedbench.
    Cells at work, failed cells and those that can resume from a checkpoint stay as they are.

    \b
    fedbench pack results
    fedbench pack results/quickstart
    """  # fmt: skip

    for path in map(Path, paths):
        suites = [path] if (path / INDEX).is_file() else sorted(index.parent for index in path.glob(f"*/{INDEX}"))
        if not suites:
            raise UserError(f"{path}: no fedbench results: neither a results folder nor a suite's folder.\n{MAKE_SOME}")
        for suite in suites:
            click.echo(f"{suite.name}: {counted(pack_suite(suite), 'cell')} packed")
