"""A cell that is equal to a finished one in all that matters, written down from that as if it had been computed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.cell.checkpoint import forget
from fedbench.disk import hash_of_file, write_atomically
from fedbench.errors import UserError
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest, read_rows, write_manifest
from fedbench.results.files import cleared, damage, described
from fedbench.results.status import HALVED
from fedbench.results.tables import bytes_of, read_table
from fedbench.runs.plan import Cell

if TYPE_CHECKING:
    import pyarrow

ROUNDS = "rounds.parquet"
# What the two have in common: how it ended, where, when, and in what time that was computed, and what was noticed.
COMMON = (
    *("status", "reason", "git", "machine", "started", "seconds", "round"),
    *("left_out", "metrics", "method", "warnings"),
)


def usable(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """The manifest of a cell that has come as far as this one is to come, and whose files are all there and whole, its
    state too; else None."""
    manifest = read_manifest(folder)
    if manifest is None or not (files := manifest.get("files")):
        return None
    far = manifest["status"] == "finished" or (manifest["status"] == HALVED and manifest.get("round", 0) >= cell.rounds)
    whole = far and all((folder / name).is_file() for name in files) and not damage(folder, manifest)
    return manifest if whole else None


def take(folder: Path, cell: Cell, place: Path, assets: Assets) -> dict[str, Any]:
    """Write a cell down from its twin in `folder`, and return its manifest, which names the cell that was computed
    under `computed_as`.

    What the twin's scenario gave its clients is not copied: the capacities in its rows are this cell's own. Like a cell
    at work it is `running` until all is there, and a killed run leaves one that the next begins anew. Raises UserError
    where the twin is not whole, or where the cell cannot be written.
    """
    of = usable(folder, cell)
    if of is None:
        raise UserError(f"{folder}: not the whole result of a cell that has come so far")
    before = read_manifest(place) or {}
    cleared(place, before)
    common = {name: of[name] for name in COMMON if name in of}
    manifest = {**cell.manifest(), **common, "computed_as": of.get("computed_as", folder.name)}
    tell, at_work = _Hooks(assets.registry, place, before.get("round", 0)), {**manifest, "status": "running"}
    write_manifest(place, at_work)
    tell("cell_started", at_work)
    for name, facts in of["files"].items():
        if name == ROUNDS and cell.config["capacities"] != of["config"]["capacities"]:
            write_atomically(place / name, bytes_of(retold(folder / name, cell, assets)), lasting=False)
            continue
        write_atomically(place / name, partial(shutil.copyfile, folder / name), lasting=False)
        if hash_of_file(place / name) != facts["sha256"]:
            raise UserError(f"{folder / name}: torn (its hash is another)")
    manifest["files"] = described(place)
    write_manifest(place, manifest)
    if manifest["status"] == "finished":
        forget(place)
    tell.end(manifest)
    return manifest


def retold(path: Path, cell: Cell, assets: Assets) -> pyarrow.Table:
    """A table of rounds, with the capacity that each of its clients has in this cell. Raises UserError."""
    import pyarrow as pa

    from fedbench.cell.sizes import Sizes
    from fedbench.types import MIXED, Client

    table, config = read_table("rounds", path), cell.config
    domains, L = assets.domains(config["data"]), assets.num_layers(config["backbone"])
    who, rounds = table["client"].to_pylist(), table["round"].to_pylist()
    number = max(who, default=-1) + 1  # of clients, as far as this knows
    held = Sizes("capacity", config["capacities"], number, config["seed"], everybody=L)
    L_n = [
        int(held.of(t - 1, Client(n, domains.index(domain) if domain in domains else MIXED, ())))  # type: ignore[arg-type]
        for t, n, domain in zip(rounds, who, table["domain"].to_pylist(), strict=True)
    ]
    position = table.schema.get_field_index("capacity")
    field = table.schema.field(position)
    return table.set_column(position, field, pa.array(L_n, type=field.type))


class _Hooks:
    """Tells trackers of a cell as its own process would have, where there are any."""

    def __init__(self, registry: Registry, place: Path, since: int) -> None:
        """since: the round up to which they have been told of it."""
        self.registry, self.place, self.since = registry, place, since
        self.heard = bool(registry.catalogue.lifecycle)

    def __call__(self, what: str, manifest: Mapping[str, Any], **facts: Any) -> None:
        if self.heard:
            self.registry.tell(f"fedbench_{what}", manifest=manifest, folder=str(self.place), **facts)

    def end(self, manifest: Mapping[str, Any]) -> None:
        """Of every round that they have not been told of, and of the end."""
        if not self.heard:
            return
        rounds, tested = (_by_round(read_rows(self.place, kind)) for kind in ("rounds", "eval"))
        for t in sorted({*rounds, *tested}):
            if t > self.since:
                told = {"round": t, "rows": rounds.get(t, []), "evaluation": tested.get(t, [])}
                self("round_finished", manifest, **told)
        done = [row for rows in tested.values() for row in rows] if manifest["status"] == "finished" else []
        self("cell_finished", manifest, evaluation=done)


def _by_round(rows: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["round"], []).append(row)
    return found
