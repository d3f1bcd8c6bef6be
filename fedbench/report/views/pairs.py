"""The view of pairs: every two ranked methods of each leaderboard."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import PLACE, Format, frame, records, tables, with_attrs
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.significance import CONDITIONS, legend_of_verdicts
from fedbench.report.statistics.pairs import BETTER, EQUAL, INCONCLUSIVE, OPPOSITE, WORSE, frame_of, sign_flip, turned
from fedbench.report.views.leaderboard import MEANINGS, about, page_of, subtitle
from fedbench.words import counted

PAIRS = (
    *PLACE, "method", "other", "verdict", "difference", "ci_low", "ci_high", "q", "n_seeds", "n_draws", "p",
    "p_sign_flip", "within",
)  # fmt: skip
SIGNS = {BETTER: ">", WORSE: "<", EQUAL: "=", INCONCLUSIVE: "?"}
MATRIX_FROM = 29  # pairs, which are too many for a screen: people get a matrix of signs


def pairs(boards: Sequence[Leaderboard], baseline: str | None = None) -> pandas.DataFrame:
    """A row for every two ranked methods of each leaderboard, the better one first; with a baseline, those with it.

    Raises:
        UserError: where no leaderboard has two methods with a seed in common.
    """
    by_board = [_pairs(board, baseline) for board in boards]
    if not any(map(len, by_board)):
        raise UserError("no two methods of these results have finished with the same seed")
    rows = [row for found in by_board for row in records(found[[*PAIRS]])]
    first = boards[0]
    legend = [
        "difference: of averages on equal cells, seed by seed; 95 % interval and p: paired t-test.",
        f"q: p after {CONDITIONS}, including pairs that are not shown. "
        + legend_of_verdicts(first.metric, first.margin),
        *([MEANINGS["n_draws"]] if any(board.replicate == "draw" for board in boards) else []),
    ]
    minus = f" · minus {baseline}" if baseline else ""
    captions = [subtitle(board).partition(", ±")[0] + minus for board in boards]
    return frame(
        rows,
        PAIRS,
        caption="Pairs of methods: better, worse, equal or inconclusive",
        pages=[page_of(*one) for one in zip(boards, captions, strict=True)],
        formats={
            "other": Format("minus", "text", part="" if baseline else "name"),
            "ci_low": Format("95 % interval", "points"),
            "verdict": Format(left=True),
            "p": Format("p", "p", "low", ""),
        },
        legend=legend,
        baseline=baseline,
        **about(boards),
    )


def _pairs(board: Leaderboard, baseline: str | None) -> pandas.DataFrame:
    """The pairs of one leaderboard in the order in which they are shown."""
    if baseline is not None:
        found = [row.gap for row in board.shown if row.gap and not row.output]
    else:
        position = {row.label: i for i, row in enumerate(board.contenders)}
        ordered = (pair if position[pair.method] < position[pair.other] else turned(pair) for pair in board.pairs)
        found = sorted(ordered, key=lambda pair: (position[pair.method], position[pair.other]))
    flips = [sign_flip(pair.values) if pair.p == pair.p and pair.values else math.nan for pair in found]
    rows = frame_of(found).assign(p_sign_flip=flips, **board.place._asdict())
    return rows.assign(n_draws=rows["n"] if board.replicate == "draw" else None)


def matrix(found: pandas.DataFrame) -> pandas.DataFrame:
    """Pairs as a matrix of signs where a leaderboard has too many for a screen: rows against numbered columns."""
    places_of = tables(found)
    longest = max(map(len, places_of.values()), default=0)
    if found.attrs.get("baseline") or found.attrs.get("columns") or longest < MATRIX_FROM:
        return found
    rows, most = [], 0
    for key, positions in places_of.items():
        signs: dict[tuple[str, str], str] = {}
        ones, others, verdicts = (found[name].iloc[positions].tolist() for name in ("method", "other", "verdict"))
        for one, two, verdict in zip(ones, others, verdicts, strict=True):
            signs |= {(one, two): SIGNS[verdict], (two, one): SIGNS[OPPOSITE.get(verdict, verdict)]}
        names = list(dict.fromkeys([*ones, *others]))
        most = max(most, len(names))
        for i, name in enumerate(names, 1):
            line = {str(k): "-" if name == other else signs.get((name, other), "") for k, other in enumerate(names, 1)}
            rows.append({**dict(zip(PLACE, key, strict=True)), "method": f"{i} {name}", **line})
    attrs = found.attrs
    meanings = "> the method of the row is better than that of the column, < worse, = equal, ? inconclusive."
    more = f"{counted(longest, 'pair')}: --baseline METHOD lists those of one method; csv and json have all."
    made = frame(
        rows,
        (*PLACE, "method", *map(str, range(1, most + 1))),
        caption=found.attrs["caption"],
        pages=attrs["pages"],
        formats={str(k): Format(left=True) for k in range(1, most + 1)},
    )
    legend = [*attrs["legend"], meanings, more]
    return with_attrs(found, made, formats=made.attrs["formats"], legend=legend)
