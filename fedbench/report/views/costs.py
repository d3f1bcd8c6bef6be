"""Costs: what clients and the server compute, what crosses between them, and what it takes on clients' devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas

from fedbench.report.frames import PLACE, Format, frame, page
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.views.leaderboard import about

# In the order of a round: what is given once, and then what every step exchanges.
KINDS = (
    *("embedding", "backbone", "additions", "adapters", "classifiers", "weights"),
    *("features", "gradients", "losses", "counts", "images"),
)
# The tables of `costs`, with their captions.
PARTS = {
    "up": "what leaves the client (up)",
    "down": "what the client is sent (down)",
    "client": "what the client computes",
    "server": "what the server computes for it",
    "simulated": "what it takes on the clients' devices (simulated)",
    "run": "what the run took",
}
LEGEND = (
    "Bytes and FLOPs: of one client in one round, the mean over clients, rounds and seeds. whole run: of all clients "
    "in all rounds.",
    "memory min/med/max: an estimate; of each client's largest, the weakest, the median and the largest client. The "
    "server's is for one client at a time.",
    "storage: what the client with the most has kept by the end, where a suite lets clients keep frozen weights or "
    "features.",
    "Γ*, cover: smallest and mean number of clients that train a layer in a round. seconds: wall time of a cell.",
    "A dash: nothing of the kind. What averaging and testing cost is not counted.",
)
SIMULATED = (
    "simulated: down, compute and up of one client in one round; a round and the whole run as the server waits; idle: "
    "the share of the clients' time in which they neither send nor compute; energy: of all clients in all rounds."
)
FORMATS = {
    "up": Format("all kinds", "crossed", "low", "up"),
    "up_total": Format("whole run", "crossed", "low", "up"),
    "down": Format("all kinds", "crossed", "low", "down"),
    "down_total": Format("whole run", "crossed", "low", "down"),
    "gflops": Format("GFLOPs", "gflops", "low", "client"),
    "total_flops": Format("whole run", "flops", "low", "client"),
    "memory_min": Format("memory min/med/max", "bytes", "low", "client"),
    "memory_median": Format(part=""),
    "memory_max": Format(part=""),
    "storage": Format("storage", "bytes", "low", "client"),
    "server_gflops": Format("GFLOPs", "gflops", "low", "server"),
    "server_total_flops": Format("whole run", "flops", "low", "server"),
    "server_memory": Format("memory", "bytes", "low", "server"),
    "down_seconds": Format("down", "seconds", "low", "simulated"),
    "compute_seconds": Format("compute", "seconds", "low", "simulated"),
    "up_seconds": Format("up", "seconds", "low", "simulated"),
    "server_seconds": Format("server", "seconds", "low", "simulated"),
    "round_seconds": Format("a round", "seconds", "low", "simulated"),
    "simulated": Format("whole run", "seconds", "low", "simulated"),
    "idle": Format("idle", "share", "low", "simulated"),
    "energy": Format("energy", "joules", "low", "simulated"),
    "gamma": Format("Γ*", "int", "high", "run"),
    "coverage": Format("cover", "decimal", "high", "run"),
    "seconds": Format("seconds", "cell seconds", "low", "run"),
}


def costs(boards: Sequence[Leaderboard]) -> pandas.DataFrame:
    """A row for each method: bytes by kind and direction, FLOPs, memory of clients and server, simulated time, Gamma*,
    coverage and wall time, as means over seeds."""
    known = [(board, row, row.cost) for board in boards for row in board.shown if not row.output and row.cost]
    kinds = _kinds([cost["exchange"] for *_, cost in known])
    up = [name for name in kinds if name.startswith("up_")]
    down = [name for name in kinds if name not in up]
    rows = []
    for board, row, cost in known:
        moved = {f"{side}_{k}": b for k, both in cost["exchange"].items() for side, b in zip(SIDES, both, strict=True)}
        by_kind = {name: moved.get(name, 0.0) if moved else None for name in kinds}
        names = {**board.place._asdict(), "method": row.label, "role": row.role, "n_seeds": len(row.runs)}
        rows.append({**names, **by_kind, **{name: cost[name] for name in FORMATS}})
    columns = (*up, "up", "up_total", *down, "down", "down_total", *FORMATS) if rows else ()
    return frame(
        rows,
        (*PLACE, "method", "role", "n_seeds", *columns),
        caption="Costs of clients and server",
        pages=[page(board.place, warning=board.warning, notes=_notes(board)) for board in boards],
        formats={**FORMATS, **kinds, "role": Format(part="")},
        legend=[*LEGEND, *([SIMULATED] if any(cost["simulated"] for *_, cost in known) else [])],
        parts=PARTS,
        dashes=True,
        **about(boards),
    )


SIDES = ("down", "up")


def _kinds(exchanges: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, Format]:
    """The columns `up_KIND` and `down_KIND` for each kind of data that any of these runs moved."""
    found = dict.fromkeys(kind for one in exchanges for kind in one)
    kinds = [*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS)]
    return {
        f"{side}_{kind}": Format(kind, "crossed", "low", side)
        for i, side in enumerate(SIDES)
        for kind in kinds
        if any(one[kind][i] for one in exchanges if kind in one)
    }


def _notes(board: Leaderboard) -> list[str]:
    rows = [row for row in board.rows if not row.output]
    without = [row.label for row in rows if row.cost and not row.cost["exchange"]]
    missing = [row.label for row in rows if not row.cost]
    notes = [f"{', '.join(without)}: computed before fedbench recorded what crosses, by kind"] if without else []
    return [*notes, *([f"{', '.join(missing)}: no costs"] if missing else [])]
