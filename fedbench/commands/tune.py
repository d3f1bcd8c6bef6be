"""fedbench tune: the winners of a suite's tuning as a plain suite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from fedbench.commands.choices import RESULTS, SUITE, FilePath, cells
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.runner.successive_halving import decided, tried
from fedbench.suite.winners import text_of
from fedbench.words import command_line


@click.command()
@SUITE
@cells
@RESULTS
@click.option("-o", "--output", type=FilePath(dir_okay=False), metavar="FILE", help="Where to; else it is printed.")
@click.option("--force", is_flag=True, help="Replace FILE.")
def tune(
    suite: str,
    results: str,
    output: str | None,
    force: bool,
    plugins: tuple,
    scenarios: tuple,
    methods: tuple,
    seeds: tuple,
    variants: tuple,
    **choices,
) -> None:
    """Write a suite in which every method has what its winner was tried with, for others to run without tuning.

    The winners are those of the results folder: `fedbench run SUITE` with the same options finds them.

    \b
    fedbench run suites/tuned/feature_skew.yaml
    fedbench tune suites/tuned/feature_skew.yaml -o winners.yaml
    fedbench run winners.yaml
    """
    _must_be_free(output, force)
    registry = Registry(plugins)
    loaded = load(suite, registry, **choices)
    if loaded.tuning is None:
        raise UserError(f"{suite}: nothing in it is tuned; docs/suites.md has what `tune:` may say")
    candidates, folder = loaded.candidates(scenarios, methods, variants), Path(results) / loaded.name
    contests = tried(loaded, candidates, registry, Assets(registry, loaded.base), folder)
    winners = decided(contests)
    if lost := [" · ".join(filter(None, key)) for key, winner in winners.items() if winner is None]:
        raise UserError(
            f"{folder}: no stable candidate: {'; '.join(lost)}.\n"
            "Choose the others with --scenario and --method; `fedbench compare tuning` shows why."
        )
    if open_ := [" · ".join(filter(None, one.key)) for one in contests if one.key not in winners]:
        raise UserError(
            f"{folder}: {len(open_)} of {len(contests)} winners are not known, such as that of "
            f"{open_[0]}.\n`{command_line(['fedbench', 'run', suite])}` finds them."
        )
    seeds = tuple(dict.fromkeys(seeds)) or loaded.seeds
    found = {key: k for key, k in winners.items() if k is not None}
    text = text_of(replace(loaded, seeds=seeds).tuned(found), registry.catalogue, Path(output or "").parent)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(Path(output), lambda draft: draft.write_text(text, encoding="utf-8"))
        click.echo(f"{output}: run it with `{command_line(['fedbench', 'run', output])}`")


def _must_be_free(output: str | None, force: bool) -> None:
    """Raises UserError where there is something already, the suite itself say."""
    if output and not force and Path(output).exists():
        raise UserError(f"{output}: there is a file already. Choose another with -o FILE, or say --force.")
