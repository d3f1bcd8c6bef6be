"""Client by client: what every method scores on each client's own test images, one line a client."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from fedbench.errors import UserError
from fedbench.report.board import Leaderboard, Row
from fedbench.report.columns import heading, point, scored, subtitle
from fedbench.report.measures import higher_is_better
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.records import to_csv, to_json

MOST = 30  # lines of a table; csv and json have every client

LEGEND = ("Each client on its own test images: mean over seeds.",)


def view(boards: Sequence[Leaderboard]) -> View:
    """A page for each leaderboard whose clients were tested; in CSV and JSON a leaderboard has every client anyway.

    Raises: UserError where none were.
    """
    found = [_page(board) for board in boards if board.by_client]
    if not found:
        raise UserError(
            "--by client: these cells were tested by domain, so no client has a score of its own.\n"
            "A suite with `evaluation: {by: client}` tests every client on images of its own."
        )
    return View(found, LEGEND, partial(to_csv, boards), partial(to_json, boards), comments=LEGEND)


def _page(board: Leaderboard) -> Page:
    rows = [row for row in board.rows if row.runs]
    scores = [_scores(row) for row in rows]
    everyone = sorted({key for one in scores for key in one}, key=lambda key: key[1])
    shown = everyone
    if len(everyone) > MOST:
        # The worst stand out in no mean, so it is they who are listed.
        means = {key: float(np.mean([one[key] for one in scores if key in one])) for key in everyone}
        worst = sorted(everyone, key=lambda key: means[key], reverse=not higher_is_better(board.metric))[:MOST]
        shown = [key for key in everyone if key in worst]
    several = len(board.domains) > 1
    names = [f"{client} {domain}" if several else str(client) for domain, client in shown]
    found = [Column("client", "name", [Shown(name) for name in names])]
    for row, one in zip(rows, scores, strict=True):
        cells = [point(one.get(key), board.metric) for key in shown]
        found.append(Column(row.label, "score", cells, **scored(board.metric)))
    left_out = f"{MOST} of {len(everyone)} clients: those that do worst in the mean over these methods; csv has all"
    return Page(
        heading(board), [Table(found, subtitle(board))], [left_out] if len(everyone) > MOST else [], place=board.place
    )


def _scores(row: Row) -> dict[tuple[str, int], float]:
    """By (domain, client), the mean over the seeds that tested it."""
    values: dict[tuple[str, int], list[float]] = {}
    for run in row.runs:
        for key, value in run.clients.items():
            values.setdefault(key, []).append(value)
    return {key: float(np.mean(seeds)) for key, seeds in values.items()}
