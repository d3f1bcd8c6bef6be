"""Cells with the values a test says, their one leaderboard, and what it shows."""

from __future__ import annotations

import io

from factories import eval_rows, write_cell
from rich.console import Console

from fedbench.report.layout import laid_out
from fedbench.report.leaderboards import leaderboards
from fedbench.report.style import show, style
from fedbench.report.views.leaderboard import leaderboard
from fedbench.results import load


def write(folder, method, *by_seed, at=12, **options):
    """Cells for seeds 0, 1, ... with the values (a, b) of two domains in one round."""
    for seed, (a, b) in enumerate(by_seed):
        write_cell(folder, method, seed, evaluation=eval_rows({at: {"a": a, "b": b}}), **options)


ROLES = {"alllarge": "ceiling", "pooled": "ceiling"}


def board(folder, **options):
    (found,) = leaderboards(load([folder]), roles=ROLES, **options)
    return found


def row(found, label):
    return next(r for r in found.rows if r.label == label)


def shown(boards, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    show(leaderboard(boards), console)
    return console.file.getvalue()


def rendered(boards, format):
    return style(leaderboard(boards), format)


def texts(found, table=0, page=0):
    """By title, the cells of a table as people read them."""
    return {c.title: [cell.text for cell in c.cells] for c in laid_out(found).pages[page].tables[table].columns}


def cells(*boards):
    """By title, the cells of a leaderboard as people read them."""
    return texts(leaderboard(boards))
