"""fedbench merge: results of several machines in one folder."""

from __future__ import annotations

import click

from fedbench.results.merge import merge as join
from fedbench.words import counted


@click.command()
@click.argument("shards", nargs=-1, required=True, type=click.Path(), metavar="SHARD...")
@click.option("--into", required=True, metavar="DIR", help="The results folder to join them in, new or not.")
def merge(shards: tuple, into: str) -> None:
    """Join every SHARD, a results folder or a suite's folder in one, in DIR. The shards stay as they are.

    \b
    one$ fedbench run suites/extreme_hetero.yaml --shard 1/2 --results one
    two$ fedbench run suites/extreme_hetero.yaml --shard 2/2 --results two
    fedbench merge one two --into results

    Every cell is taken once, and a finished one before one that failed. Where two shards have different results of one
    cell, both are named and nothing is written. The hash printed is that of one run on one machine
    (`fedbench compare DIR --hash`).
    """  # fmt: skip
    for merged in join(shards, into):
        parts = f"{counted(merged.copied, 'cell')} copied, {merged.kept} already there, {merged.left} left to run"
        click.echo(f"{merged.suite}: {parts}\n{merged.content_hash}  {merged.folder}")
        if merged.mixed:
            click.echo(f"Computed with different versions, which may change scores: {merged.mixed}.", err=True)
