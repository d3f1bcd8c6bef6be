"""fedbench merge and fedbench pack: results of several machines in one folder, and finished cells in tables."""

from __future__ import annotations

from pathlib import Path

import click

from fedbench.commands.choices import PLUGINS, FilePath, output
from fedbench.commands.terminal import say
from fedbench.results.lock import suite_lock
from fedbench.results.merge import merge as join
from fedbench.results.merge import suite_folders
from fedbench.results.pack import pack as pack_suite
from fedbench.words import counted, human_bytes, quoted


@click.command()
@click.argument("shards", nargs=-1, required=True, type=FilePath(), metavar="SHARD...")
@click.option(
    "--into", required=True, type=FilePath(), metavar="DIR", help="The results folder to merge into, new or existing."
)
def merge(shards: tuple, into: str) -> None:
    """Merge every SHARD, a results folder or the folder of a suite in one, into DIR. The shards are not changed.

    \b
    one$ fedbench run suites/extreme_hetero.yaml --shard 1/2 --results one
    two$ fedbench run suites/extreme_hetero.yaml --shard 2/2 --results two
    fedbench merge one two --into results

    Every cell is taken once, and a finished cell replaces one that failed. If two shards have different results of one
    cell, both are named and nothing is written. The printed hash is that of one run on one machine (`fedbench compare
    hash DIR`).
    """  # fmt: skip
    for merged in join(shards, into):
        parts = f"{counted(merged.copied, 'cell')} copied, {merged.kept} already there, {merged.left} left to run"
        say(f"{merged.suite}: {parts}\n{merged.content_hash}  {merged.folder}")
        if merged.mixed:
            say(f"Computed in different ways, which may change scores: {merged.mixed}.", err=True)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=FilePath(), metavar="DIR...")
@click.option("--bundle", is_flag=True, help="Also write one zip file for an appendix, see below.")
@output("FILE", "With --bundle: the zip file. An earlier one is replaced.", "bundle.zip")
@click.option(
    "--with",
    "files",
    multiple=True,
    type=FilePath(dir_okay=False),
    metavar="FILE",
    help="With --bundle: put FILE into it, such as the suite.",
)
@PLUGINS
def pack(paths: tuple, bundle: bool, out: str, files: tuple, plugins: tuple) -> None:
    """Pack the finished cells of every DIR, a results folder or the folder of a suite in one, into a few Parquet files.

    A run does this itself when it ends. Use the command for results of a run that was killed, or of an older fedbench.
    Cells that are running, have failed or can resume from a checkpoint are not packed.

    \b
    fedbench pack results
    fedbench pack results/my_study --bundle -o appendix.zip --plugin mine.py

    A bundle has these tables without the models, the code of plugins given by --plugin, and the versions of packages.
    `fedbench reproduce appendix.zip` runs its cells again and compares each.
    """  # fmt: skip
    found: list[Path] = []
    for path in map(Path, paths):
        suites = [suite.resolve() for suite in suite_folders(path)]  # a bundle calls them by their names
        for suite in suites:
            with suite_lock(suite, "fedbench pack"):
                packed = pack_suite(suite)
            if packed or not bundle:
                say(f"{suite.name}: {counted(packed, 'cell')} packed")
        found += suites
    if bundle:
        from fedbench.registry.installed import sources_of
        from fedbench.registry.registry import Registry
        from fedbench.results.bundle import write

        registry = Registry(plugins)
        code = {name: sources_of(path) for name, path in registry.files.items()}
        versions = {name: registry.version(name) for name in registry.files}
        file = Path(out)
        names = write(file, found, code, versions, list(map(Path, files)))
        say(f"{file}: {counted(len(names), 'file')}, {human_bytes(file.stat().st_size)}. To check it elsewhere:")
        say(f"  fedbench reproduce {quoted(str(file))}{' --trust-plugins' * bool(plugins)}")
