"""A leaderboard as columns of text, the same for every format that people read, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedbench.report.board import Leaderboard, Row, cell
from fedbench.report.budget import TOLD
from fedbench.report.cost import Cost
from fedbench.report.headings import headings
from fedbench.report.legends import margin, sentences, too_few
from fedbench.report.measures import Score, is_fraction
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.records import to_csv, to_json
from fedbench.report.statistics.pairs import Pair
from fedbench.results.choice import higher_is_better, measure
from fedbench.words import amount, human_bytes, human_joules, lasting, three_digits

SPREAD = "±"
DASH = "–"
INTERVAL = "95 % interval"
STATUS = {
    "failed": "failed",
    "timeout": "timeout",
    "interrupted": "unfinished",
    "running": "unfinished",
    "pending": "pending",
    "damaged": "damaged",
    "not_applicable": DASH,
}


def number(value: float, metric: str, signed: bool = False) -> str:
    sign, times, usual = "+" if signed else "", *((100, ".1f") if is_fraction(metric) else (1, ".3f"))
    return f"{times * value:{sign}{measure(metric).format or usual}}"


def view(boards: Sequence[Leaderboard]) -> View:
    """Leaderboards in every format."""
    pages, texts = [page_of(board) for board in boards], (partial(to_csv, boards), partial(to_json, boards))
    return View(pages, legend(boards), *texts, only=partial(_only, boards))


def _only(boards: Sequence[Leaderboard], kept: Sequence[Sequence[int]]) -> tuple[Callable[[], str], Callable[[], str]]:
    """CSV and JSON of the rows at these positions."""
    few = [replace(b, rows=[b.rows[i] for i in rows]) for b, rows in zip(boards, kept, strict=True) if rows]
    return partial(to_csv, few), partial(to_json, few)


def page_of(board: Leaderboard) -> Page:
    """A leaderboard as one table; its second outputs stand back."""
    faint = [i for i, row in enumerate(board.rows) if row.output]
    notes = [*board.notes, *too_few(board)]
    return Page(heading(board), [Table(columns(board), subtitle(board), faint=faint)], notes, place=board.place)


def columns(board: Leaderboard) -> list[Column]:
    """The name, then the scores, then the cost: what `--format rich`, `markdown` and `latex` show."""

    unit, best = "%" if is_fraction(board.metric) else "", _best(board.metric)

    def scores(column: str, title: str = "", **facts: Any) -> Column:
        cells = []
        for row in board.rows:
            value = cell(row, column)
            blank = Shown(DASH if row.status == "not_applicable" else "")
            cells.append(Shown(number(value.mean, board.metric), value=value.mean) if value else blank)
        return Column(title or column, "score", cells, **{"unit": unit, "best": best, **facts})

    found = [Column("method", "name", [Shown(row.label) for row in board.rows])]
    if len(board.domains) > 1 or not board.by_client:
        found += [scores(domain) for domain in board.domains]
    found.append(Column("average", "score", _averages(board), unit=unit, best=best, also=(board.metric,)))
    if any(row.average and row.average.interval for row in board.rows):
        found.append(Column(INTERVAL, "score", [interval(row) for row in board.rows], least=9, also=("interval",)))
    if any(row.group for row in board.rows):
        found.append(Column("group", "score", [Shown(row.group) for row in board.rows], left=True))
    if board.by_client:
        found.append(scores("spread", "client sd", least=9, unit="points" if unit else "", best="low"))
        found.append(scores("worst_clients", "worst 10 %", least=10))
    elif len(board.domains) > 1:
        found.append(scores("worst"))
    found += _gaps(board) if board.baseline else []
    if board.budget is not None:
        found.append(Column("round", "budget", [Shown(str(row.round) if row.runs else "") for row in board.rows]))
        spent = [_spent(row, board.at) for row in board.rows]
        found.append(Column("spent", "budget", spent, unit=board.at, best="low"))
    return found + _costs(board)


def _averages(board: Leaderboard) -> list[Shown]:
    """Where there is no number, the word that says why."""
    cells = []
    for row in board.rows:
        if row.average is None:
            cells.append(Shown(STATUS.get(row.status, DASH)))
            continue
        cells.append(spread(row.average, row.metric))
    return cells


def spread(value: Score, metric: str) -> Shown:
    """The mean, and how far seeds are apart."""
    apart = "" if value.std is None else SPREAD + number(value.std, metric)
    return Shown(number(value.mean, metric), apart, value.mean)


def interval(row: Row) -> Shown:
    """Of the average."""
    if row.average is None or row.average.low is None or row.average.high is None:
        return Shown("")
    return Shown(f"{number(row.average.low, row.metric)}{DASH}{number(row.average.high, row.metric)}")


def _gaps(board: Leaderboard) -> list[Column]:
    """The differences to the baseline; with intervals they are a part of their own, which stays together."""
    pairs = [row.gap for row in board.rows]
    facts: dict[str, Any] = {"unit": "points" if is_fraction(board.metric) else "", "best": _best(board.metric)}
    told = [(number(pair.mean, board.metric, signed=True), pair.mean) if pair else ("", None) for pair in pairs]
    differences = [Shown(text, value=value) for text, value in told]
    if not any(pair and pair.low is not None for pair in pairs):
        return [Column("gap", "score", differences, **facts)]
    return [
        Column("gap", "gap", differences, **facts),
        Column(f"gap, {INTERVAL}", "gap", [between(pair, board.metric) for pair in pairs], also=("gap interval",)),
        Column("verdict", "gap", [Shown(verdict(pair, board)) for pair in pairs], left=True),
    ]


def between(pair: Pair | None, metric: str) -> Shown:
    """The interval of a difference."""
    if pair is None or pair.low is None or pair.high is None:
        return Shown("")
    return Shown(f"{number(pair.low, metric, True)} to {number(pair.high, metric, True)}")


def verdict(pair: Pair | None, board: Leaderboard) -> str:
    """`better`, or `better (<1)` where the whole interval lies within the margin of equivalence."""
    if pair is None:
        return ""
    return f"{pair.verdict} (<{margin(board)})" if pair.apart and pair.within else pair.verdict


def _best(metric: str) -> str:
    return "high" if higher_is_better(metric) else "low"


def _spent(row: Row, what: str) -> Shown:
    return Shown("" if row.spent is None else amount(row.spent, what), value=row.spent)


COSTS: Sequence[tuple[str, Callable[[Cost], float | None], Callable[[float], str]]] = (
    ("down + up", lambda c: c.bytes_down + c.bytes_up, human_bytes),
    ("GFLOPs", lambda c: c.gflops, three_digits),
    ("srv GFLOPs", lambda c: c.server_gflops, three_digits),
    ("memory", lambda c: c.memory_bytes, human_bytes),
    ("srv memory", lambda c: c.server_memory_bytes, human_bytes),
    ("Γ*", lambda c: c.gamma, str),
    ("cover", lambda c: c.coverage, "{:.2f}".format),
    ("simulated", lambda c: c.simulated.total if c.simulated else None, lasting),
    ("energy", lambda c: c.simulated.joules if c.simulated else None, human_joules),
    ("seconds", lambda c: c.seconds, three_digits),
)


UNITS = {"down + up": "bytes", "memory": "bytes", "srv memory": "bytes", "simulated": "seconds", "energy": "joules"}
ALSO = {"down + up": ("bytes", "traffic"), "Γ*": ("gamma", "G*"), "cover": ("coverage",)}
LEAST = {"srv GFLOPs": 10, "srv memory": 10, "simulated": 9}  # letters of a title that tell it from others


def _costs(board: Leaderboard) -> list[Column]:
    """A second output costs nothing of its own: its cells are empty."""
    found = []
    for title, pick, show in COSTS:
        values = [pick(row.cost) if row.cost and not row.output else None for row in board.rows]
        if any(value is not None for value in values):
            cells = [Shown("" if value is None else show(value), value=value) for value in values]
            facts: dict[str, Any] = {"unit": UNITS.get(title, ""), "also": ALSO.get(title, ())}
            best = "high" if title in ("Γ*", "cover") else "low"
            found.append(Column(title, "cost", cells, least=LEAST.get(title, 5), best=best, **facts))
    return found


def heading(board: Leaderboard) -> str:
    """Where it stands, as if it stood alone: suite, scenario, variant, backbone, data set, profile."""
    return headings([board.place]).titles[0]


def subtitle(board: Leaderboard) -> str:
    """What: metric, round, seeds."""
    rounds = list(dict.fromkeys(str(row.round) for row in board.rows if row.runs))
    at = {
        "final": f"round {' or '.join(rounds)}",
        "best": "each seed's best round on validation images",
        "last4": f"mean of the last four evaluated rounds, up to round {' or '.join(rounds)}",
    }.get(board.at) or _within(board)
    unit = f", {named}" if (named := measure(board.metric).unit) else ""
    if not rounds and board.budget is None:
        return f"{board.metric}: no cell has finished"
    return f"{board.metric}{unit} · {at} · {_seeds(board)}"


def _within(board: Leaderboard) -> str:
    """The budget, and of what it is."""
    return f"within {amount(board.budget or 0.0, board.at)} ({TOLD[board.at]})"


def _seeds(board: Leaderboard) -> str:
    counts = sorted({len(row.runs) for row in board.rows if row.runs})
    if not counts:
        return "no seed"
    if counts == [1]:
        return "1 seed"
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean of {n} seeds, {SPREAD} their standard deviation"


def legend(boards: Sequence[Leaderboard]) -> list[str]:
    """What the columns mean; one sentence for each that is there."""
    return sentences({column.title for board in boards for column in columns(board)}, boards)
