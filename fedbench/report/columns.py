"""A leaderboard as columns of text, the same for every format that people read, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fedbench.report.board import Leaderboard, Row, cell
from fedbench.report.budget import TOLD
from fedbench.report.cost import Cost
from fedbench.report.headings import headings
from fedbench.report.legends import margin, sentences, too_few
from fedbench.report.measures import Score, is_fraction
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.records import to_csv, to_json
from fedbench.report.statistics.pairs import Pair
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
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f}" if is_fraction(metric) else f"{value:{sign}.3f}"


def view(boards: Sequence[Leaderboard]) -> View:
    """Leaderboards in every format."""
    return View([page_of(board) for board in boards], legend(boards), partial(to_csv, boards), partial(to_json, boards))


def page_of(board: Leaderboard) -> Page:
    """A leaderboard as one table; its second outputs stand back."""
    faint = [i for i, row in enumerate(board.rows) if row.output]
    notes = [*board.notes, *too_few(board)]
    return Page(heading(board), [Table(columns(board), subtitle(board), faint=faint)], notes, place=board.place)


def columns(board: Leaderboard) -> list[Column]:
    """The name, then the scores, then the cost: what `--format rich`, `markdown` and `latex` show."""

    def scores(column: str, show: Callable[[Score], tuple[str, str]]) -> list[Shown]:
        cells = []
        for row in board.rows:
            value = cell(row, column)
            cells.append(Shown(*(show(value) if value else (DASH if row.status == "not_applicable" else "", ""))))
        return cells

    def plain(value: Score) -> tuple[str, str]:
        return number(value.mean, board.metric), ""

    found = [Column("method", "name", [Shown(row.label) for row in board.rows])]
    if len(board.domains) > 1 or not board.by_client:
        found += [Column(domain, "score", scores(domain, plain)) for domain in board.domains]
    found.append(Column("average", "score", _averages(board)))
    if any(row.average and row.average.interval for row in board.rows):
        found.append(Column(INTERVAL, "score", [interval(row) for row in board.rows], least=9))
    if any(row.group for row in board.rows):
        found.append(Column("group", "score", [Shown(row.group) for row in board.rows], left=True))
    if board.by_client:
        found.append(Column("client sd", "score", scores("spread", plain), least=9))
        found.append(Column("worst 10 %", "score", scores("worst_clients", plain), least=10))
    elif len(board.domains) > 1:
        found.append(Column("worst", "score", scores("worst", plain)))
    found += _gaps(board) if board.baseline else []
    if board.budget is not None:
        found.append(Column("round", "budget", [Shown(str(row.round) if row.runs else "") for row in board.rows]))
        found.append(Column("spent", "budget", [_spent(row, board.at) for row in board.rows]))
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
    return Shown(number(value.mean, metric), "" if value.std is None else SPREAD + number(value.std, metric))


def interval(row: Row) -> Shown:
    """Of the average."""
    if row.average is None or row.average.low is None or row.average.high is None:
        return Shown("")
    return Shown(f"{number(row.average.low, row.metric)}{DASH}{number(row.average.high, row.metric)}")


def _gaps(board: Leaderboard) -> list[Column]:
    """The differences to the baseline; with intervals they are a part of their own, which stays together."""
    pairs = [row.gap for row in board.rows]
    differences = [Shown(number(pair.mean, board.metric, signed=True) if pair else "") for pair in pairs]
    if not any(pair and pair.low is not None for pair in pairs):
        return [Column("gap", "score", differences)]
    return [
        Column("gap", "gap", differences),
        Column(f"gap, {INTERVAL}", "gap", [between(pair, board.metric) for pair in pairs]),
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


def _spent(row: Row, what: str) -> Shown:
    return Shown("" if row.spent is None else amount(row.spent, what))


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


LEAST = {"srv GFLOPs": 10, "srv memory": 10, "simulated": 9}  # letters of a title that tell it from others


def _costs(board: Leaderboard) -> list[Column]:
    """A second output costs nothing of its own: its cells are empty."""
    found = []
    for title, pick, show in COSTS:
        values = [pick(row.cost) if row.cost and not row.output else None for row in board.rows]
        if any(value is not None for value in values):
            cells = [Shown("" if value is None else show(value)) for value in values]
            found.append(Column(title, "cost", cells, least=LEAST.get(title, 5)))
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
    unit = ", %" if is_fraction(board.metric) else ""
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
