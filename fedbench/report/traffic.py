"""Costs across families: what leaves the client and what it is sent, kind by kind, and who computes how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fedbench.report.absences import DASH
from fedbench.report.board import Leaderboard, Row
from fedbench.report.columns import exact, heading
from fedbench.report.cost import Cost, Traffic
from fedbench.report.headings import Place
from fedbench.report.page import Column, Kept, Page, Shown, Table, View, names
from fedbench.report.records import csv_text, to_json
from fedbench.report.simulated import PARTS, Simulated
from fedbench.words import human_bytes, human_flops, human_joules, lasting, three_digits

# In the order of a round: what is given once, and then what every step exchanges.
KINDS = ("backbone", "additions", "adapters", "classifiers", "weights", "features", "gradients", "losses", "counts")
CSV_COLUMNS = (
    *Place._fields, "method", "n_seeds", "side", "quantity", "what", "per_client_round", "total",
)  # fmt: skip

LEGEND = (
    "Bytes and FLOPs: of one client in one round, the mean over clients, rounds and seeds. whole run: of all "
    "clients in all rounds.",
    "memory: an estimate; the largest of any client, and the server's for one client at a time.",
    "A dash: nothing of the kind. What averaging and testing cost is not counted.",
)
SIMULATED = (
    "simulated: down, compute and up of one client in one round; a round and the whole run as the server waits; idle: "
    "of the clients' time, what they neither sent nor computed in; energy: of all clients in all rounds."
)

# GFLOPs of one client in one round, FLOPs of the whole run, and bytes of memory.
Computed = tuple[float | None, float | None, float | None]
COMPUTED: Sequence[tuple[str, Callable[[float], str], str]] = (
    ("GFLOPs", three_digits, ""), ("whole run", human_flops, "flops"), ("memory", human_bytes, "bytes"),
)  # fmt: skip


def view(boards: Sequence[Leaderboard]) -> View:
    """The costs of leaderboards; in JSON they have them anyway."""
    pages = [page_of(board) for board in boards]
    simulated = any(row.cost and row.cost.simulated for board in boards for row in board.rows)
    legend = (*LEGEND, SIMULATED) if simulated else LEGEND

    def few(kept: Kept) -> Sequence[Leaderboard]:
        left = []
        for board, labels in zip(boards, names(pages, kept), strict=True):
            by_label = {row.label: row for row in board.rows}
            left.append(replace(board, rows=[by_label[label] for label in labels]))
        return [board for board in left if board.rows]

    return View.of(pages, legend, boards, to_csv, to_json, few)


def page_of(board: Leaderboard) -> Page:
    """Tables of one leaderboard: up, down, and what clients and servers compute. Second outputs cost nothing of their
    own."""
    rows = [row for row in board.rows if row.cost and not row.output]
    tables = []
    if rows:
        names = Column("method", "name", [Shown(row.label) for row in rows])
        up = _moved(rows, lambda one: one.up, lambda c: (c.bytes_up, c.total_bytes_up))
        down = _moved(rows, lambda one: one.down, lambda c: (c.bytes_down, c.total_bytes - c.total_bytes_up))
        costs = [row.cost for row in rows if row.cost]
        clients: list[Computed] = [(c.gflops, 1e9 * c.total_gflops, c.memory_bytes) for c in costs]
        servers: list[Computed] = [
            (c.server_gflops, c.server_total_gflops and 1e9 * c.server_total_gflops, c.server_memory_bytes)
            for c in costs
        ]
        tables = [
            Table([names, *up], "what leaves the client (up)"),
            Table([names, *down], "what the client is sent (down)"),
            Table([names, *_computed(clients)], "what the client computes"),
        ]
        if any(flops is not None for flops, *_ in servers):
            tables.append(Table([names, *_computed(servers)], "what the server computes for it"))
        if any(c.simulated for c in costs):
            tables.append(Table([names, *_simulated(costs)], "what it takes on the clients' devices (simulated)"))
    without = [row.label for row in rows if row.cost and not row.cost.exchange]
    notes = [f"{', '.join(without)}: computed before fedbench recorded what crosses, by kind"] if without else []
    missing = [row.label for row in board.rows if not row.cost and not row.output]
    return Page(
        heading(board), tables, notes + ([f"{', '.join(missing)}: no costs"] if missing else []), place=board.place
    )


def _kinds(rows: Sequence[Row]) -> list[str]:
    """What crosses in any of the rows, those of KINDS first."""
    found = dict.fromkeys(what for row in rows if row.cost for what in row.cost.exchange)
    return [*(what for what in KINDS if what in found), *(what for what in found if what not in KINDS)]


def _moved(
    rows: Sequence[Row], pick: Callable[[Traffic], float], total: Callable[[Cost], tuple[float, float]]
) -> list[Column]:
    """In one direction: a column for each kind that any method moves, then their sum and that of the whole run, which
    are known of older cells, too."""
    moved = [row.cost.exchange if row.cost else {} for row in rows]
    columns = {what: [pick(one[what]) if what in one else 0.0 for one in moved] for what in _kinds(rows)}
    columns = {what: values for what, values in columns.items() if any(values)}
    totals = [total(row.cost) if row.cost else (0.0, 0.0) for row in rows]
    columns["all kinds"], columns["whole run"] = map(list, zip(*totals, strict=True))
    return [
        Column(title, "cost", [exact(value, _crossed) for value in values], unit="bytes", best="low")
        for title, values in columns.items()
    ]


def _crossed(count: float) -> str:
    return human_bytes(count) if count else DASH


def _computed(costs: Sequence[Computed]) -> list[Column]:
    return [
        Column(title, "cost", [exact(cost[i], show, DASH) for cost in costs], unit=unit, best="low")
        for i, (title, show, unit) in enumerate(COMPUTED)
    ]


def _simulated(costs: Sequence[Cost]) -> list[Column]:
    """A client's parts of a round, then rounds and runs as the server waits."""
    found = [cost.simulated for cost in costs]
    parts: dict[str, Callable[[Simulated], float | None]] = {
        "down": lambda one: one.down,
        "compute": lambda one: one.compute,
        "up": lambda one: one.up,
        "server": lambda one: one.server or None,
        "a round": lambda one: one.round,
        "whole run": lambda one: one.total,
    }
    columns = [
        Column(
            title,
            "cost",
            [exact(pick(one) if one else None, lasting, DASH) for one in found],
            unit="seconds",
            best="low",
        )
        for title, pick in parts.items()
        if title != "server" or any(one and one.server for one in found)
    ]
    idle = [exact(one.idle if one else None, "{:.0%}".format, DASH) for one in found]
    energy = [exact(one.joules if one else None, human_joules, DASH) for one in found]
    return [
        *columns,
        Column("idle", "cost", idle, unit="%", best="low"),
        Column("energy", "cost", energy, unit="joules", best="low"),
    ]


def to_csv(boards: Sequence[Leaderboard]) -> str:
    """A row for every method and quantity, bytes by kind as well: means over seeds in bytes and FLOPs.

    total is empty for memory and idle time, and per_client_round for seconds; a quantity that a method does not have
    has no row.
    """
    return csv_text(CSV_COLUMNS, (record for board in boards for record in _records(board)))


def _records(board: Leaderboard) -> Iterator[tuple[Any, ...]]:
    for row in board.rows:
        for quantity in _quantities(row.cost) if row.cost and not row.output else ():
            yield *board.place, row.method, len(row.runs), *quantity


def _quantities(cost: Cost) -> Iterator[tuple[str, str, str, float | None, float | None]]:
    """(side, quantity, what, of one client in one round, in total)."""
    for what, one in cost.exchange.items():
        yield "client", "bytes_up", what, one.up, one.total_up
        yield "client", "bytes_down", what, one.down, one.total_down
    yield "client", "bytes", "all", cost.bytes_down + cost.bytes_up, cost.total_bytes
    yield "client", "flops", "all", cost.gflops * 1e9, cost.total_gflops * 1e9
    yield "client", "memory_bytes", "all", cost.memory_bytes, None
    if cost.server_gflops is not None and cost.server_total_gflops is not None:
        yield "server", "flops", "all", cost.server_gflops * 1e9, cost.server_total_gflops * 1e9
        yield "server", "memory_bytes", "all", cost.server_memory_bytes, None
    if took := cost.simulated:
        n = cost.client_rounds
        for name in PARTS:
            each = getattr(took, name)
            yield "simulated", f"{name}_seconds", "all", each, each * n
        yield "simulated", "seconds", "all", None, took.total
        yield "simulated", "idle_share", "all", took.idle, None
        if took.joules is not None:
            yield "simulated", "energy", "all", took.joules / n, took.joules
    yield "cell", "seconds", "all", None, cost.seconds
