"""What leaderboards may conclude: which methods are told apart, and what a gap to the baseline says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedbench.report.board import Leaderboard, Row
from fedbench.report.measures import is_fraction
from fedbench.report.statistics.intervals import FEWEST
from fedbench.report.statistics.letters import letters
from fedbench.report.statistics.pairs import Pair, all_pairs, judged, paired
from fedbench.results.choice import higher_is_better, without_noise

POINT = 0.01  # of a fraction that is shown in percent


def concluded(boards: Sequence[Leaderboard], equivalent: float | None = None) -> list[Leaderboard]:
    """The leaderboards with pairs, groups and gaps.

    Benjamini-Hochberg is over all pairs of ranked methods on all these leaderboards, so that two methods are told apart
    in one view as in any other of the same results. Pairs with a ceiling are a family of their own: most of them differ
    for sure, which would make room for false discoveries among the others.
    """
    if not boards:
        return []
    metric = boards[0].metric
    higher, margin = higher_is_better(metric), margin_of(metric, equivalent)
    pairs = judged([all_pairs({r.label: r.by_seed for r in contenders(b)}) for b in boards], higher, margin)
    gaps = judged([_aside(board) for board in boards], higher, margin)
    return [
        replace(board, pairs=told, margin=margin, rows=_rows(board, told, aside))
        for board, told, aside in zip(boards, pairs, gaps, strict=True)
    ]


def margin_of(metric: str, equivalent: float | None) -> float | None:
    """Points as a difference of the metric; 1 for what is in percent, and none for what has no such scale, like a loss,
    unless it is asked for."""
    if is_fraction(metric):
        return POINT * (1.0 if equivalent is None else equivalent)
    return equivalent


def contenders(board: Leaderboard) -> list[Row]:
    """The ranked rows that have a number, the best first."""
    rows = [row for row in board.rows if row.ranked and row.average and math.isfinite(row.average.mean)]
    sign = -1 if higher_is_better(board.metric) else 1
    return sorted(rows, key=lambda row: sign * without_noise(row.average.mean) if row.average else 0.0)


def _aside(board: Leaderboard) -> list[Pair]:
    """Rows against the baseline, as far as either of them is never ranked; second outputs have no verdict at all."""
    base = next((row for row in board.rows if row.label == board.baseline), None)
    if base is None:
        return []
    others = [row for row in board.rows if row.method != base.method and not row.output]
    found = (paired(r.label, r.by_seed, base.label, base.by_seed) for r in others if not (r.ranked and base.ranked))
    return [pair for pair in found if pair]


def _rows(board: Leaderboard, pairs: Sequence[Pair], aside: Sequence[Pair]) -> list[Row]:
    enough = [row.label for row in contenders(board) if len(row.by_seed) >= FEWEST]
    apart = {frozenset((pair.method, pair.other)) for pair in pairs if pair.apart}
    groups = letters(enough, apart) if len(enough) > 1 else {}
    base = next((row for row in board.rows if row.label == board.baseline), None)
    ours = [pair for pair in pairs if base and base.label in (pair.method, pair.other)]
    known = {(pair.method, pair.other): pair for pair in (*ours, *(p.turned() for p in ours), *aside)}
    found = []
    for row in board.rows:
        gap = None
        if base is not None and row.method != base.method:
            gap = known.get((row.label, base.label)) or paired(row.label, row.by_seed, base.label, base.by_seed)
        found.append(replace(row, gap=gap, group=groups.get(row.label, "")))
    return found
