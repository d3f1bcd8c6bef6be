"""Leaderboards as records for other programs, and how records become CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fedbench.report.board import Leaderboard, Row
from fedbench.report.measures import Score, score
from fedbench.types import GLOBAL

CSV_COLUMNS = (
    "suite", "scenario", "method", "variant", "backbone", "dataset", "metric", "domain", "client", "split",
    "mean", "std", "n_seeds", "round", "low", "high", "interval", "group",
)  # fmt: skip


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A line of titles and one for each row; None becomes an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def json_text(found: Any) -> str:
    """A document that ends with a line break; what is not a finite number becomes null."""
    return json.dumps(_plain(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(boards: Sequence[Leaderboard]) -> str:
    """A row for every method, metric and domain (and client, where each is tested), then the average.

    client is -1 for the global model and empty for a mean over clients; std is empty for one seed, low, high and
    interval ("t" or "bca") for fewer than three. group is that of the average. Where clients are tested, `client_sd`
    and `worst_10_percent` follow in place of a domain; where a budget is set, `spent` and `budget` with the metric
    `client_bytes`, `client_flops`, `client_joules` or `simulated_seconds`. A method without a finished cell has no
    rows.
    """
    return csv_text(CSV_COLUMNS, (record for board in boards for row in board.rows for record in _rows(board, row)))


def _rows(board: Leaderboard, row: Row) -> Iterator[tuple[Any, ...]]:
    if not row.runs:
        return
    place = board.place
    where = (place.suite, place.scenario, row.method, place.variant, place.backbone, place.dataset)
    for metric, domain, client, value in (*_scores(row), *_spending(board, row)):
        group = row.group if domain == "average" else ""
        around = (value.low, value.high, value.interval, group)
        yield *where, metric, domain, client, board.split, value.mean, value.std, value.n, row.round, *around


def _scores(row: Row) -> Iterator[tuple[str, str, int | str, Score]]:
    by_client: dict[tuple[str, int], list[float]] = {}
    for run in row.runs:
        for key, value in run.clients.items():
            by_client.setdefault(key, []).append(value)
    for (domain, client), values in by_client.items():
        yield row.metric, domain, client, score(values)
    everyone = any(client == GLOBAL for _, client in by_client)
    if not everyone:
        for domain, mean in row.domains.items():
            yield row.metric, domain, "", mean
    if row.average:
        yield row.metric, "average", GLOBAL if everyone else "", row.average
    if row.spread and row.worst_clients:
        yield row.metric, "client_sd", "", row.spread
        yield row.metric, "worst_10_percent", "", row.worst_clients


def _spending(board: Leaderboard, row: Row) -> Iterator[tuple[str, str, str, Score]]:
    if board.budget is not None and not row.output:
        metric = "simulated_seconds" if board.at == "seconds" else f"client_{board.at}"
        yield metric, "spent", "", score([run.spent for run in row.runs if run.spent is not None])
        yield metric, "budget", "", Score(board.budget, None, len(row.runs))


def to_json(boards: Sequence[Leaderboard]) -> str:
    """Everything a leaderboard knows, in fractions, bytes, FLOPs and seconds; what does not exist is null."""
    return json_text([_board(board) for board in boards])


def _board(board: Leaderboard) -> dict[str, Any]:
    found = board.place._asdict() | asdict(replace(board, pairs=())) | {"domains": list(board.domains)}
    del found["place"], found["pairs"]  # the first is said, the second are records of their own, of `--pairs`
    for row, into in zip(board.rows, found["rows"], strict=True):
        into |= {"label": row.label, "n_seeds": len(row.runs), "round": row.round if row.runs else None}
        into["spent"] = row.spent
        if row.gap:
            into["gap"]["p_sign_flip"] = row.gap.p_sign_flip
        for run in into["runs"]:
            run["clients"] = [
                {"domain": d, "client": c, "value": v} for (d, c), v in run["clients"].items() if c != GLOBAL
            ]
    return found
