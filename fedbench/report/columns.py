"""A leaderboard as columns of text, the same for every format that people read, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedbench.report.absences import ABSENCES, DASH
from fedbench.report.board import Leaderboard, Row, cell
from fedbench.report.budget import TOLD
from fedbench.report.cost import Cost
from fedbench.report.headings import headings
from fedbench.report.legends import margin, sentences, too_few
from fedbench.report.measures import Score, is_fraction
from fedbench.report.page import Column, Kept, Page, Shown, Table, View
from fedbench.report.records import to_csv, to_json
from fedbench.report.statistics.pairs import Pair
from fedbench.results.choice import higher_is_better, measure
from fedbench.words import amount, human_bytes, human_joules, lasting, three_digits

SPREAD = "±"
INTERVAL = "95 % interval"


def number(value: float, metric: str, signed: bool = False) -> str:
    sign, times, usual = "+" if signed else "", *((100, ".1f") if is_fraction(metric) else (1, ".3f"))
    return f"{times * value:{sign}{measure(metric).format or usual}}"


def scored(metric: str) -> dict[str, Any]:
    """What filters are told of a column of scores."""
    return {"unit": "%" if is_fraction(metric) else "", "best": "high" if higher_is_better(metric) else "low"}


def subtracted(metric: str) -> dict[str, Any]:
    """What filters are told of a column of differences."""
    return scored(metric) | {"unit": "points" if is_fraction(metric) else ""}


def exact(value: float | None, show: Callable[[float], str], none: str = "") -> Shown:
    """A number as text, and whole for filters and programs."""
    return Shown(none if value is None else show(value), value=value)


def point(value: float | None, metric: str, none: str = "") -> Shown:
    """A score."""
    return exact(value, partial(number, metric=metric), none)


def step(value: float | None, metric: str) -> Shown:
    """A difference of scores."""
    return exact(value, partial(number, metric=metric, signed=True))


def view(boards: Sequence[Leaderboard]) -> View:
    """Leaderboards in every format."""
    pages, texts = [page_of(board) for board in boards], (partial(to_csv, boards), partial(to_json, boards))
    return View(pages, legend(boards), *texts, only=partial(_only, boards))


def _only(boards: Sequence[Leaderboard], kept: Kept) -> tuple[Callable[[], str], Callable[[], str]]:
    """CSV and JSON of the rows in these lines."""
    few = [replace(b, rows=[b.rows[i] for i in rows]) for b, (rows,) in zip(boards, kept, strict=True) if rows]
    return partial(to_csv, few), partial(to_json, few)


def page_of(board: Leaderboard) -> Page:
    """A leaderboard as one table; its second outputs stand back."""
    faint = [i for i, row in enumerate(board.rows) if row.output]
    notes = [*board.notes, *too_few(board)]
    return Page(heading(board), [Table(columns(board), subtitle(board), faint=faint)], notes, place=board.place)


def columns(board: Leaderboard) -> list[Column]:
    """The name, then the scores, then the cost: what `--format rich`, `markdown` and `latex` show."""

    facts = scored(board.metric)

    def scores(column: str, title: str = "", **others: Any) -> Column:
        cells = []
        for row in board.rows:
            value = cell(row, column)
            blank = DASH if row.status == "not_applicable" else ""
            cells.append(point(value.mean if value else None, board.metric, blank))
        return Column(title or column, "score", cells, **{**facts, **others})

    found = [Column("method", "name", [Shown(row.label) for row in board.rows])]
    if len(board.domains) > 1 or not board.by_client:
        found += [scores(domain) for domain in board.domains]
    found.append(Column("average", "score", _averages(board), also=(board.metric,), **facts))
    if any(row.average and row.average.interval for row in board.rows):
        found.append(intervals(board.rows))
    if any(row.group for row in board.rows):
        found.append(Column("group", "score", [Shown(row.group) for row in board.rows], left=True))
    if board.by_client:
        found.append(scores("spread", "client sd", least=9, unit="points" if facts["unit"] else "", best="low"))
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
            cells.append(Shown(ABSENCES[row.status].short or DASH))
            continue
        cells.append(spread(row.average, row.metric))
    return cells


def spread(value: Score, metric: str) -> Shown:
    """The mean, and how far seeds are apart."""
    apart = "" if value.std is None else SPREAD + number(value.std, metric)
    return Shown(number(value.mean, metric), apart, value.mean)


def intervals(rows: Sequence[Row]) -> Column:
    """Of the averages."""
    return around([_interval(row) for row in rows])


def _interval(row: Row) -> Shown:
    if row.average is None or row.average.low is None or row.average.high is None:
        return Shown("")
    low, high = row.average.low, row.average.high
    return Shown(f"{number(low, row.metric)}{DASH}{number(high, row.metric)}", ends=(low, high))


def _gaps(board: Leaderboard) -> list[Column]:
    """The differences to the baseline; with intervals they are a part of their own, which stays together."""
    pairs = [row.gap for row in board.rows]
    differences, facts = [step(pair.mean if pair else None, board.metric) for pair in pairs], subtracted(board.metric)
    if not any(pair and pair.low is not None for pair in pairs):
        return [Column("gap", "score", differences, **facts)]
    ends = [between(pair, board.metric) for pair in pairs]
    return [
        Column("gap", "gap", differences, **facts),
        Column(f"gap, {INTERVAL}", "gap", ends, also=("gap interval",), interval=True),
        Column("verdict", "gap", [Shown(verdict(pair, board)) for pair in pairs], left=True),
    ]


def around(cells: Sequence[Shown], part: str = "score") -> Column:
    """A column of intervals."""
    return Column(INTERVAL, part, cells, least=9, also=("interval",), interval=True)


def between(pair: Pair | None, metric: str) -> Shown:
    """The interval of a difference."""
    if pair is None or pair.low is None or pair.high is None:
        return Shown("")
    ends = (pair.low, pair.high)
    return Shown(" to ".join(number(end, metric, True) for end in ends), ends=ends)


def verdict(pair: Pair | None, board: Leaderboard) -> str:
    """`better`, or `better (<1)` where the whole interval lies within the margin of equivalence."""
    if pair is None:
        return ""
    return f"{pair.verdict} (<{margin(board)})" if pair.apart and pair.within else pair.verdict


def _spent(row: Row, what: str) -> Shown:
    return exact(row.spent, partial(amount, what=what))


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
            cells = [exact(value, show) for value in values]
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
