"""A leaderboard as columns of text, the same for every format that people read, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fedbench.report.board import Leaderboard, Row, cell, marks
from fedbench.report.cost import Cost
from fedbench.report.measures import Score
from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.records import to_csv, to_json
from fedbench.words import amount, human_bytes, three_digits

SPREAD = "±"
DASH = "–"
STATUS = {
    "failed": "failed",
    "timeout": "timeout",
    "interrupted": "unfinished",
    "running": "unfinished",
    "pending": "pending",
    "not_applicable": DASH,
}


def is_fraction(metric: str) -> bool:
    """Accuracies are shown in percent, everything else (a loss) as it is."""
    return "accuracy" in metric


def number(value: float, metric: str, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f}" if is_fraction(metric) else f"{value:{sign}.3f}"


def view(boards: Sequence[Leaderboard]) -> View:
    """Leaderboards in every format."""
    return View([page_of(board) for board in boards], legend(boards), partial(to_csv, boards), partial(to_json, boards))


def page_of(board: Leaderboard) -> Page:
    """A leaderboard as one table; its second outputs stand back."""
    faint = [i for i, row in enumerate(board.rows) if row.output]
    return Page(heading(board), [Table(columns(board), subtitle(board), faint=faint)], board.notes)


def columns(board: Leaderboard) -> list[Column]:
    """The name, then the scores, then the cost: what `--format rich`, `markdown` and `latex` show."""
    marked = marks(board)

    def scores(column: str, show: Callable[[Score], tuple[str, str]]) -> list[Shown]:
        cells = []
        for i, row in enumerate(board.rows):
            value = cell(row, column)
            text = show(value) if value else (DASH if row.status == "not_applicable" else "", "")
            cells.append(Shown(*text, mark=marked.get((i, column), "")))
        return cells

    def plain(value: Score) -> tuple[str, str]:
        return number(value.mean, board.metric), ""

    found = [Column("method", "name", [Shown(row.label) for row in board.rows])]
    if len(board.domains) > 1 or not board.by_client:
        found += [Column(domain, "score", scores(domain, plain)) for domain in board.domains]
    found.append(Column("average", "score", _averages(board, marked)))
    if board.by_client:
        found.append(Column("client sd", "score", scores("spread", plain), least=9))
        found.append(Column("worst 10 %", "score", scores("worst_clients", plain), least=10))
    elif len(board.domains) > 1:
        found.append(Column("worst", "score", scores("worst", plain)))
    if board.baseline:
        found.append(Column("gap", "score", [_gap(row) for row in board.rows]))
        if any(row.gap and row.gap.low is not None for row in board.rows):
            found.append(Column("gap, 95 % interval", "cost", [_interval(row) for row in board.rows]))
    if board.budget is not None:
        found.append(Column("round", "budget", [Shown(str(row.round) if row.runs else "") for row in board.rows]))
        found.append(Column("spent", "budget", [_spent(row, board.at) for row in board.rows]))
    return found + _costs(board)


def _averages(board: Leaderboard, marked: dict[tuple[int, str], str]) -> list[Shown]:
    """Where there is no number, the word that says why."""
    cells = []
    for i, row in enumerate(board.rows):
        if row.average is None:
            cells.append(Shown(STATUS.get(row.status, DASH)))
            continue
        std = row.average.std
        spread = "" if std is None else SPREAD + number(std, row.metric)
        cells.append(Shown(number(row.average.mean, row.metric), spread, marked.get((i, "average"), "")))
    return cells


def _gap(row: Row) -> Shown:
    return Shown(number(row.gap.mean, row.metric, signed=True) if row.gap else "")


def _spent(row: Row, what: str) -> Shown:
    return Shown("" if row.spent is None else amount(row.spent, what))


def _interval(row: Row) -> Shown:
    if row.gap is None or row.gap.low is None or row.gap.high is None:
        return Shown("")
    return Shown(f"{number(row.gap.low, row.metric, True)} to {number(row.gap.high, row.metric, True)}")


COSTS: Sequence[tuple[str, Callable[[Cost], float | None], Callable[[float], str]]] = (
    ("down + up", lambda c: c.bytes_down + c.bytes_up, human_bytes),
    ("GFLOPs", lambda c: c.gflops, three_digits),
    ("srv GFLOPs", lambda c: c.server_gflops, three_digits),
    ("memory", lambda c: c.memory_bytes, human_bytes),
    ("srv memory", lambda c: c.server_memory_bytes, human_bytes),
    ("Γ*", lambda c: c.gamma, str),
    ("cover", lambda c: c.coverage, "{:.2f}".format),
    ("seconds", lambda c: c.seconds, three_digits),
)


def _costs(board: Leaderboard) -> list[Column]:
    """A second output costs nothing of its own: its cells are empty."""
    found = []
    for title, pick, show in COSTS:
        values = [pick(row.cost) if row.cost and not row.output else None for row in board.rows]
        if any(value is not None for value in values):
            cells = [Shown("" if value is None else show(value)) for value in values]
            found.append(Column(title, "cost", cells, least=10 if title.startswith("srv") else 5))
    return found


def heading(board: Leaderboard) -> str:
    """Where: suite, scenario, variant, backbone, data set, profile."""
    setting = f"{board.backbone} on {board.dataset}"
    parts = (board.suite, board.scenario, board.variant, setting, f"{board.profile} profile")
    return " · ".join(part for part in parts if part.strip())


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
    """The budget of all clients together."""
    what = {"bytes": "bytes down + up", "flops": "FLOPs"}[board.at]
    return f"within {amount(board.budget or 0.0, board.at)} ({what} of all clients together)"


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
    titles = {column.title for board in boards for column in columns(board)}
    sentences = []
    baselines = sorted({board.baseline for board in boards if board.baseline})
    if any(marks(board) for board in boards):
        left_out = f" ({', '.join(baselines)}, the baseline, is not ranked)" if baselines else ""
        sentences.append(f"* best, + second of a column{left_out}.")
    if "worst" in titles:
        sentences.append("average, worst: over the domains of each seed.")
    if "client sd" in titles:
        sentences.append("average: plain mean over clients, each tested on images of its own, whatever their domain.")
        sentences.append(
            "client sd, worst 10 %: standard deviation over clients, and mean of the worst tenth of them "
            "(one at least), of each seed; then means over seeds."
        )
    if "gap" in titles:
        sentences.append(f"gap: average minus that of {' or '.join(baselines)}, paired by seed.")
    if "gap, 95 % interval" in titles:
        sentences.append("interval: Student's t over the paired seeds.")
    if "down + up" in titles:
        sentences.append("down + up (traffic), GFLOPs: mean of one client in one round.")
    if "memory" in titles:
        sentences.append("memory: the largest estimate of any client.")
    if "srv GFLOPs" in titles:
        sentences.append("srv: what the server computes for one client in one round, and its memory for one at a time.")
    if "spent" in titles:
        sentences.append(
            "round, spent: the last evaluated round within the budget, and what the clients had spent by then; "
            "the other costs are of the whole run."
        )
    if "Γ*" in titles:
        sentences.append("Γ*, cover: smallest and mean number of clients that train a layer in a round.")
    if "seconds" in titles:
        sentences.append("seconds: wall time of a cell.")
    return sentences
