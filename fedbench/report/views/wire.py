"""Deployed cells: what was measured of their messages and trainings, next to what is simulated of the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import PLACE, Format, frame, page
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.views.leaderboard import about

SIMULATED = ("round", "client", "bytes_down", "bytes_up", "flops", "down_seconds", "compute_seconds", "up_seconds")
PARTS = {"bytes": "what crossed", "seconds": "what a client's round took"}
FORMATS = {
    "messages": Format("messages", "int", part="bytes"),
    "lost": Format("lost", "int", "low", part="bytes"),
    "down": Format("down", "crossed", part="bytes"),
    "simulated_down": Format("simulated", "crossed", part="bytes"),
    "framing_down": Format("framing", "small share", "low", part="bytes"),
    "up": Format("up", "crossed", part="bytes"),
    "simulated_up": Format("simulated", "crossed", part="bytes"),
    "framing_up": Format("framing", "small share", "low", part="bytes"),
    "transfer": Format("transfer", "cell seconds", part="seconds"),
    "simulated_transfer": Format("simulated", "cell seconds", part="seconds"),
    "cpu": Format("CPU", "cell seconds", part="seconds"),
    "simulated_compute": Format("simulated", "cell seconds", part="seconds"),
    "flops_per_second": Format("FLOP/s", "flops a second", part="seconds"),
    "role": Format(part=""),
}
LEGEND = (
    "Bytes: of the tensors of messages whose replies arrived, over all clients, rounds and seeds; framing: what the "
    "messages had beyond them. lost: messages without a usable reply.",
    "transfer: seconds between sending a message and its reply in which the node did not work. CPU: seconds of "
    "training on one core. Both are medians over clients, rounds and seeds, next to those of the simulated clock, "
    "which are known only if clients have devices. FLOP/s: simulated FLOPs over these CPU seconds.",
)


def wire(boards: Sequence[Leaderboard]) -> pandas.DataFrame:
    """A row for each method that was computed on nodes: bytes and seconds, measured and simulated.

    Raises:
        UserError: where no cell is deployed.
    """
    rows, pages = [], []
    for board in boards:
        own = [found for row in board.shown if not row.output and (found := _columns(row))]
        rows += [{**board.place._asdict(), **found} for found in own]
        pages += [page(board.place, warning=board.warning, notes=board.notes)] if own else []
    if not rows:
        raise UserError("none of these cells was computed on nodes; docs/deploy.md says how")
    return frame(
        rows,
        (*PLACE, "method", "role", "n_seeds", *(name for name in FORMATS if name != "role")),
        caption="Deployed cells: measured and simulated",
        pages=pages,
        formats=FORMATS,
        legend=LEGEND,
        parts=PARTS,
        dashes=True,
        **about(boards),
    )


def _columns(row: Row) -> dict[str, Any] | None:
    """The numbers of one method; None where none of its cells is deployed."""
    cells = [result for result in row.finished.values() if len(result.table("wire"))]
    if not cells:
        return None
    key = ["round", "client"]
    every = pandas.concat(
        result.table("wire")
        .to_pandas()
        .merge(result.rounds.select(SIMULATED).to_pandas(), on=key, suffixes=("", "_simulated"))
        for result in cells
    )
    own = every[every["outcome"] == "arrived"]
    found: dict[str, Any] = {"method": row.label, "role": row.role, "n_seeds": len(cells)}
    found |= {"messages": len(every), "lost": len(every) - len(own)}
    for way in ("down", "up"):
        moved, message = float(own[f"bytes_{way}"].sum()), float(own[f"message_{way}"].sum())
        found |= {way: moved, f"simulated_{way}": float(own[f"bytes_{way}_simulated"].sum())}
        found[f"framing_{way}"] = message / moved - 1 if moved else None
    medians = {
        "transfer": own["round_trip"] - own["node_seconds"],
        "simulated_transfer": own["down_seconds"] + own["up_seconds"],
        "cpu": own["cpu_seconds"],
        "simulated_compute": own["compute_seconds"],
    }
    found |= {name: None if values.isna().all() else float(values.median()) for name, values in medians.items()}
    cpu = float(own["cpu_seconds"].sum())
    return found | {"flops_per_second": float(own["flops"].sum()) / cpu if cpu else None}
