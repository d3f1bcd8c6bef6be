"""What was measured of deployed cells, next to what is simulated of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.errors import UserError
from fedbench.results import read_index
from fedbench.results.packed_tables import packed_tables

if TYPE_CHECKING:
    import pandas

SIMULATED = ("bytes_down", "bytes_up", "flops", "down_seconds", "compute_seconds", "up_seconds")


def measured(folder: Path) -> pandas.DataFrame:
    """A row for each deployed cell of a suite's folder.

    messages, lost: how many nodes were asked, and how many of them answered nothing that was used. bytes_*: of the
    tensors that crossed, where the client's work arrived, and `simulated_*` of the same clients and rounds.
    framing_*: what the messages have beyond these, in percent. cpu_seconds: of training; flops_per_second: the FLOPs
    that are simulated by these. round_trip: the median in seconds; outside: the median of what is spent outside the
    node, of which `simulated_transfer` is simulated, NaN where clients have no devices. Raises UserError where no cell
    is deployed.
    """
    import pandas as pd

    index, store = read_index(folder), packed_tables(folder)
    if index is None or "wire" not in index.tables:
        raise UserError(f"{folder}: none of its cells was computed on nodes")
    wire, rounds = (store.table(kind).to_pandas() for kind in ("wire", "rounds"))
    key = ["cell", "round", "client"]
    both = wire.merge(rounds[[*key, *SIMULATED]], on=key, suffixes=("", "_simulated"))
    names = {entry.cell: f"{entry.scenario} · {entry.method} · seed {entry.seed}" for entry in index.entries}
    rows = []
    for cell, every in both.groupby("cell", sort=False):
        own = every[every["outcome"] == "arrived"]
        row: dict[str, object] = {
            "cell": names.get(str(cell), cell),
            "messages": len(every),
            "lost": len(every) - len(own),
        }
        for way in ("down", "up"):
            moved, message = own[f"bytes_{way}"].sum(), own[f"message_{way}"].sum()
            row |= {f"bytes_{way}": int(moved), f"simulated_{way}": int(own[f"bytes_{way}_simulated"].sum())}
            row[f"framing_{way}"] = 100 * (message / moved - 1) if moved else float("nan")
        cpu = own["cpu_seconds"].sum()
        row |= {"cpu_seconds": cpu, "flops_per_second": own["flops"].sum() / cpu if cpu else float("nan")}
        row |= {"round_trip": own["round_trip"].median(), "outside": (own["round_trip"] - own["node_seconds"]).median()}
        row["simulated_transfer"] = (own["down_seconds"] + own["up_seconds"]).median()
        rows.append(row)
    return pd.DataFrame(rows)
