"""Pair by pair: who is better than whom, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fedbench.errors import UserError
from fedbench.report.board import WHERE, Leaderboard
from fedbench.report.columns import around, between, exact, heading, step, subtitle, subtracted, verdict
from fedbench.report.evidence import contenders
from fedbench.report.legends import CONDITIONS, too_few, verdicts
from fedbench.report.page import Column, Kept, Page, Shown, Table, View
from fedbench.report.records import csv_text, json_text
from fedbench.report.statistics.pairs import BETTER, EQUAL, NOT_TOLD, WORSE, Pair
from fedbench.words import counted

MOST = 28  # lines of a table, the pairs of eight methods; of more a matrix of signs fits a screen
SIGNS = {BETTER: ">", WORSE: "<", EQUAL: "=", NOT_TOLD: "?"}

CSV_COLUMNS = (
    *WHERE, "method", "other", "difference", "low", "high", "n_seeds", "p", "p_sign_flip", "q", "verdict", "within",
)  # fmt: skip


def view(boards: Sequence[Leaderboard], baseline: str | None = None) -> View:
    """A page for each leaderboard: all its pairs or, with a baseline, those with it.

    Raises: UserError where no leaderboard has two methods with a seed in common.
    """
    pairs = [_pairs(board, baseline) for board in boards]
    if not any(pairs):
        raise UserError("--pairs: no two methods of these results have finished with the same seed")
    pages = [_page(board, found, baseline) for board, found in zip(boards, pairs, strict=True)]
    legend = _legend(boards, any(len(found) > MOST for found in pairs))

    def few(kept: Kept) -> Any:
        return partial(_records, boards, [_in_lines(*one) for one in zip(boards, pairs, kept, strict=True)])

    return View.of(pages, legend, partial(_records, boards, pairs), to_csv, to_json, few)


def _in_lines(board: Leaderboard, pairs: Sequence[Pair], lines: Sequence[Sequence[int]]) -> list[Pair]:
    """The pairs in lines of a page's table, if it has one; of a matrix those with the method of any line."""
    places = [i for at in lines for i in at]
    if len(pairs) <= MOST:
        return [pairs[i] for i in places]
    methods = [row.label for row in contenders(board)]
    return [pair for pair in pairs if {pair.method, pair.other} & {methods[i] for i in places}]


def _pairs(board: Leaderboard, baseline: str | None) -> list[Pair]:
    """Each with its better half first, the best methods before others; or every method minus the baseline."""
    if baseline is not None:
        return [row.gap for row in board.rows if row.gap and not row.output]
    place = {row.label: i for i, row in enumerate(contenders(board))}
    turned = [pair if place[pair.method] < place[pair.other] else pair.turned() for pair in board.pairs]
    return sorted(turned, key=lambda pair: (place[pair.method], place[pair.other]))


def _page(board: Leaderboard, pairs: Sequence[Pair], baseline: str | None) -> Page:
    notes = [*board.notes, *too_few(board)]
    if not pairs:
        return Page(heading(board), [], notes, place=board.place)
    caption = subtitle(board).rpartition(" · ")[0]  # without the seeds, which each pair counts for itself
    caption += f" · minus {baseline}" if baseline else ""
    if len(pairs) <= MOST:
        return Page(heading(board), [Table(_listed(board, pairs, baseline), caption)], notes, place=board.place)
    more = (
        f"{counted(len(pairs), 'pair')}: --baseline METHOD lists those of one method with their numbers; "
        "csv and json have all"
    )
    return Page(heading(board), [Table(_matrix(board, pairs), caption)], notes, [more], place=board.place)


def _listed(board: Leaderboard, pairs: Sequence[Pair], baseline: str | None) -> list[Column]:
    name = "method" if baseline else "pair"
    names = [pair.method if baseline else f"{pair.method} - {pair.other}" for pair in pairs]
    return [
        # Cut short, a pair would have lost its second method.
        Column(name, "name", [Shown(text) for text in names], least=5 if baseline else max(map(len, names))),
        Column("difference", "score", [step(pair.mean, board.metric) for pair in pairs], **subtracted(board.metric)),
        around([between(pair, board.metric) for pair in pairs]),
        Column("seeds", "score", [exact(pair.n, str) for pair in pairs]),
        Column("p", "score", [exact(pair.p, probability) for pair in pairs], best="low"),
        Column("q", "score", [exact(pair.q, probability) for pair in pairs], best="low"),
        Column("verdict", "score", [Shown(verdict(pair, board)) for pair in pairs], left=True),
    ]


def _matrix(board: Leaderboard, pairs: Sequence[Pair]) -> list[Column]:
    """Signs of a row's method against a column's, the best first in both; columns are numbered as the rows."""
    both = {(pair.method, pair.other): pair for one in pairs for pair in (one, one.turned())}
    names = [row.label for row in contenders(board)]
    found = [Column("method", "name", [Shown(f"{i} {name}") for i, name in enumerate(names, 1)])]
    for i, other in enumerate(names, 1):
        signs = ["-" if name == other else _sign(both.get((name, other))) for name in names]
        found.append(Column(str(i), "score", [Shown(sign) for sign in signs]))
    return found


def _sign(pair: Pair | None) -> str:
    return SIGNS[pair.verdict] if pair else ""


def probability(p: float | None) -> str:
    """Three decimals; what is smaller is said to be."""
    if p is None:
        return ""
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def _legend(boards: Sequence[Leaderboard], signs: bool) -> list[str]:
    found = ["difference: of averages on equal cells, seed by seed; 95 % interval and p: paired t-test."]
    found.append(f"q: p after {CONDITIONS}, those that are not listed among them. {verdicts(boards)}")
    if signs:
        found.append("> the method of the row is better than that of the column, < worse, = equal, ? not told.")
    return found


def _records(boards: Sequence[Leaderboard], pairs: Sequence[Sequence[Pair]]) -> Iterator[dict[str, Any]]:
    """In fractions of the metric."""
    for board, found in zip(boards, pairs, strict=True):
        for pair in found:
            known = {"difference": pair.mean, "n_seeds": pair.n}
            told = {name: known[name] if name in known else getattr(pair, name) for name in CSV_COLUMNS[len(WHERE) :]}
            yield board.where | told


def to_csv(records: Any) -> str:
    """A row for every pair."""
    return csv_text(CSV_COLUMNS, (list(record.values()) for record in records()))


def to_json(records: Any) -> str:
    """The rows of the CSV as objects."""
    return json_text(list(records()))
