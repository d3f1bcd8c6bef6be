"""The view of single clients, where each was tested on its own images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import PLACE, Format, frame, page, tables, with_attrs
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.views.leaderboard import about, subtitle
from fedbench.results.metric_direction import higher_is_better

MOST_CLIENTS = 30  # lines of a table that people read


def clients(boards: Sequence[Leaderboard]) -> pandas.DataFrame:
    """A row for each client with the mean over seeds of every method, on the client's own test images.

    Raises:
        UserError: where no leaderboard tested its clients.
    """
    own = [board for board in boards if board.by_client]
    if not own:
        raise UserError(
            "these cells were tested by domain, so no client has a score of its own.\n"
            "A suite with `evaluation: {by: client}` tests every client on examples of its own."
        )
    methods = list(dict.fromkeys(row.label for board in own for row in board.rows if row.runs))
    return frame(
        [row for board in own for row in _clients(board)],
        (*PLACE, "client", "domain", *methods),
        caption="Clients, each on its own test examples: mean over seeds",
        pages=[page(board.place, caption=subtitle(board), warning=board.warning) for board in own],
        formats={**dict.fromkeys(methods, Format("", "score", "metric")), "domain": Format(part="name")},
        legend=["Each client on its own test examples: mean over seeds."],
        **about(own),
    )


def _clients(board: Leaderboard) -> list[dict[str, Any]]:
    scores: dict[tuple[int, str], dict[str, list[float]]] = {}
    for row in board.rows:
        for run in row.runs:
            for (domain, client), value in run.clients.items():
                scores.setdefault((client, domain), {}).setdefault(row.label, []).append(value)
    return [
        {**board.place._asdict(), "client": client, "domain": domain, **{m: fmean(v) for m, v in scores[key].items()}}
        for key in sorted(scores, key=lambda key: key[0])
        for client, domain in [key]
    ]


def worst_clients(found: pandas.DataFrame) -> pandas.DataFrame:
    """Of many clients those that do worst in the mean over methods, which is what fits a screen."""
    methods = [name for name in found.columns if name not in (*PLACE, "client", "domain")]
    sign = 1 if higher_is_better(found.attrs["metric"]) else -1
    order = (sign * found[methods].mean(axis=1)).fillna(math.inf).tolist()  # the worst first
    kept, notes = list[int](), dict[tuple[str, ...], str]()
    for key, positions in tables(found).items():
        if len(positions) > MOST_CLIENTS:
            notes[key] = f"{MOST_CLIENTS} of {len(positions)} clients, those that do worst; csv has all"
            positions = sorted(sorted(positions, key=order.__getitem__)[:MOST_CLIENTS])
        kept += positions
    pages = [
        {**one, "notes": [notes[key]]} if (key := tuple(one["key"])) in notes else one for one in found.attrs["pages"]
    ]
    return with_attrs(found.iloc[kept], pages=pages)
