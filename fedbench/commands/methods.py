"""fedbench methods: which there are, what unequal clients hold less of, and the papers they are from."""

from __future__ import annotations

import sys

import click

from fedbench.commands.choices import FORM_OR_BIBTEX, PLUGINS
from fedbench.commands.output import put, warn_of_lost
from fedbench.registry.registry import Registry


@click.command()
@PLUGINS
@FORM_OR_BIBTEX
def methods(plugins: tuple, form: str) -> None:
    """List the methods by family, with what they limit, their role in a leaderboard, and their paper.

    \b
    fedbench methods
    fedbench methods --plugin mine.py
    fedbench methods --format csv
    fedbench methods --format bibtex > methods.bib
    fedbench plugins show fedra

    Exit code: 0, or 1 if a plugin could not be read.
    """
    from fedbench.report.views import lists

    registry = Registry(plugins)
    put(lists.methods(registry.catalogue.components["method"].values()), form)
    sys.exit(1 if warn_of_lost(registry) else 0)
