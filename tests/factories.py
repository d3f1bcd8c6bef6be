"""Results folders made of invented numbers, for tests of what reads results: nothing is trained."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_json, write_atomically
from fedbench.results import read_index, write_manifest, write_rows
from fedbench.results.columns import SIMULATED
from fedbench.results.identity import identity
from fedbench.results.index import Entry, Index, Key, commit, merged_entries
from fedbench.results.pack import pack
from fedbench.results.packed_tables import folder_of
from fedbench.results.tables import table_bytes

DOMAINS = ("solid", "outline", "texture", "dim", "clutter", "sketch")
CAPACITIES = (12, 10, 8, 6, 4, 3)
ORDERS = list(islice(permutations(CAPACITIES), 6, 120))  # none of them a rotation
AS_RUN = {
    "traceback": None,
    "fingerprints": {"data": "d0", "weights": "w0"},
    "versions": {"fedbench": "0.1.0"},
    "machine": {"cpu": "any"},
    "git": None,
    "started": "2026-01-02T03:04:05+00:00",
}


def rotated(seed: int) -> tuple[int, ...]:
    """The capacities as `rotate_capacities` gives them to the clients, the same for every sixth seed."""
    return CAPACITIES[seed % 6 :] + CAPACITIES[: seed % 6]


def config(method: str, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A resolved configuration; `train__rounds=3` changes one value of a part."""
    found: dict[str, Any] = {
        "backbone": {"name": "micro_vit", "pretrained": True},
        "adapter": {"name": "lora", "rank": 8, "alpha": 8, "dropout": 0.1, "targets": "last_fc"},
        "data": {
            "name": "strokes6",
            "image_size": None,
            "normalize": "backbone",
            "partition": {"name": "by_domain"},
        },
        "capacities": {"by_client": list(rotated(seed) if seed < 6 else ORDERS[seed % 114])},
        "participation": {"all": True},
        "train": {"rounds": 12, "local_epochs": 1, "max_steps": None, "batch_size": 32, "clip": None},
        "method": {"name": method},
        "evaluation": {"every": None, "batch_size": 500, "metrics": [{"name": "accuracy"}]},
        "seed": seed,
        "profile": "paper",
        "precision": "fp32",
        "engine": "sequential",
    }
    for dotted, value in changes.items():
        part, _, key = dotted.partition("__")
        if key:
            found[part][key] = value
        else:
            found[part] = value
    return found


def eval_rows(
    values: Mapping[int, Mapping[str, float]], metric: str = "accuracy", client: int = -1, split: str = "test"
) -> list[dict[str, Any]]:
    """{round: {domain: value}} as rows of eval.parquet."""
    return [
        {
            "round": t,
            "split": split,
            "domain": d,
            "client": client,
            "metric": metric,
            "value": v,
            "examples": 300,
        }
        for t, by_domain in values.items()
        for d, v in by_domain.items()
    ]


def round_row(t: int, client: int, layers: Sequence[int], **changes: Any) -> dict[str, Any]:
    """One client in one round: 1 MB down, 0.5 MB up and 2 GFLOPs for each layer it holds."""
    row = {
        "round": t,
        "client": client,
        "domain": DOMAINS[client % len(DOMAINS)],
        "capacity": len(layers),
        "layers": list(layers),
        "trained_layers": list(layers),
        "rank": None,
        "examples": 1200,
        "steps": 38,
        "arrived": True,
        "loss": 1.5,
        "bytes_down": 1_000_000 * len(layers),
        "bytes_up": 500_000 * len(layers),
        "flops": 2_000_000_000 * len(layers),
        "memory_bytes": 10_000_000 * len(layers),
        "workspace_bytes": None,
        "seconds": 0.2,
        **dict.fromkeys(SIMULATED),
    }
    return row | changes


def prefix_rounds(capacities: Sequence[int] = CAPACITIES, rounds: int = 12) -> list[dict[str, Any]]:
    """Every client holds its first L_n layers in every round."""
    return [round_row(t, n, range(depth)) for t in range(1, rounds + 1) for n, depth in enumerate(capacities)]


@functools.cache
def usual_rounds() -> bytes:
    """The table of rounds of every cell that is given none."""
    return table_bytes("rounds", prefix_rounds())


def layer_row(t: int, layer: int, holders: int = 6, **changes: Any) -> dict[str, Any]:
    """One layer in one round; the averages lose a tenth of the products."""
    row = {
        "round": t,
        "layer": layer,
        "holders": holders,
        "update_norm": 0.2 / (t + layer),
        "client_update_norm": 0.5 / (t + layer),
        "aggregation_error": 0.1,
        "product_norm": 1.0,
    }
    return row | changes


def own_id(index: Index, resolved: dict[str, Any], key: Key) -> str:
    """The id of a cell that no other name of the suite has: where one has the same configuration, which would be the
    same cell, this one's gets a part more."""
    id = identity(resolved, AS_RUN["fingerprints"], AS_RUN["versions"])
    names = [entry.key for entry in index.entries if entry.cell == id]
    if not names or key in names:
        return id
    resolved["made_for"] = hash_of_json(list(key))
    return identity(resolved, AS_RUN["fingerprints"], AS_RUN["versions"])


def write_cell(
    suite_folder: Path,
    method: str,
    seed: int = 0,
    *,
    scenario: str = "mixed",
    variant: str = "",
    label: str = "",
    status: str = "finished",
    reason: str | None = None,
    evaluation: Sequence[Mapping[str, Any]] = (),
    rounds: Sequence[Mapping[str, Any]] | None = None,
    layers: Sequence[Mapping[str, Any]] | None = None,
    exchange: Sequence[Mapping[str, Any]] | None = None,
    server: Sequence[Mapping[str, Any]] | None = None,
    clock: Sequence[Mapping[str, Any]] | None = None,
    sizes: Sequence[Mapping[str, Any]] | None = None,
    deployed: Sequence[Mapping[str, Any]] | None = None,
    wire: Sequence[Mapping[str, Any]] | None = None,
    shared: dict[str, Any] | None = None,
    turnout: dict[str, Any] | None = None,
    candidate: int | None = None,
    **changes: Any,
) -> Path:
    """One cell with its entry in index.json; returns the cell's folder. `changes` go to `config`."""
    resolved, index = config(method, seed, **changes), read_index(suite_folder) or Index(suite_folder.name)
    id = own_id(index, resolved, (scenario, label or method, variant, seed, candidate))
    folder = folder_of(suite_folder, id)
    if status == "finished":
        write_rows(folder, "eval", evaluation)
        write_atomically(folder / "rounds.parquet", usual_rounds() if rounds is None else table_bytes("rounds", rounds))
        beside = {"layers": layers, "exchange": exchange, "server": server, "clock": clock}
        write_beside(folder, beside | {"sizes": sizes, "deployed": deployed, "wire": wire})
    own = {"id": id, "status": status, "reason": reason, "config": resolved, "seconds": 20.0 + seed}
    write_manifest(folder, AS_RUN | own | ({"turnout": turnout} if turnout else {}))
    entry = Entry(
        scenario=scenario,
        method=label or method,
        variant=variant,
        seed=seed,
        cell=id,
        backbone=resolved["backbone"]["name"],
        dataset=resolved["data"]["name"],
        profile=resolved["profile"],
        shared=shared,
        candidate=candidate,
    )
    commit(suite_folder, replace(index, suite=suite_folder.name, entries=merged_entries(index.entries, [entry])))
    return folder


def cell_of(suite_folder: Path, method: str, seed: int = 0) -> Path:
    """The folder of the first cell that the index names so."""
    index = read_index(suite_folder)
    assert index is not None
    return next(folder_of(suite_folder, e.cell) for e in index.entries if (e.method, e.seed) == (method, seed))


def write_beside(folder: Path, tables: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> None:
    """The tables that there are; older cells have none of these."""
    for kind, table in tables.items():
        if table is not None:
            write_rows(folder, kind, table)


def write_suite(folder: Path, seeds: Sequence[int] = (0, 1, 2), scenario: str = "mixed", packed: bool = True) -> Path:
    """A suite like the shipped ones: five methods, two controls, one second output, one cell that failed, one
    not applicable. packed: as a run leaves it, unless it is added to a folder.
    """
    if folder.exists() or not packed:
        return _made_up(folder, tuple(seeds), scenario)
    shutil.copytree(_template(folder.name, tuple(seeds), scenario), folder)
    return folder


@functools.cache
def _template(name: str, seeds: tuple[int, ...], scenario: str) -> Path:
    """Such a suite, made once and copied."""
    made = tempfile.TemporaryDirectory(prefix="fedbench-made-up-")
    atexit.register(made.cleanup)
    folder = _made_up(Path(made.name) / name, seeds, scenario)
    pack(folder)
    return folder


def _made_up(folder: Path, seeds: tuple[int, ...], scenario: str) -> Path:
    last = {
        "inclusivefl": 0.80,
        "depthfl": 0.83,
        "fedra": 0.86,
        "allsmall": 0.58,
        "alllarge": 0.92,
        "head_only": 0.52,
    }
    difficulty = dict(zip(DOMAINS, (0.05, 0.02, 0.0, -0.12, -0.03, 0.08), strict=True))
    for method, level in last.items():
        for seed in seeds:
            values = {t: {d: _invented(level, e, t, seed, d) for d, e in difficulty.items()} for t in (3, 6, 9, 12)}
            rows = eval_rows(values) + eval_rows(
                {t: {d: 1 - v for d, v in by.items()} for t, by in values.items()}, "loss"
            )
            if method == "depthfl":
                rows += eval_rows(
                    {t: {d: v - 0.01 for d, v in by.items()} for t, by in values.items()}, "accuracy/last"
                )
            write_cell(folder, method, seed, scenario=scenario, evaluation=rows)
    for seed in seeds:
        write_cell(
            folder,
            "exclusive",
            seed,
            scenario=scenario,
            status="not_applicable",
            reason="no client holds all 12 layers",
        )
    return folder


def _invented(level: float, ease: float, t: int, seed: int, domain: str) -> float:
    """A fraction of 300 test images, with some made-up scatter over seeds and domains."""
    scatter = (int(level * 100) * (seed + 3) * (DOMAINS.index(domain) + 2) % 13 - 6) / 400
    return round(min(1.0, level + ease + scatter - (12 - t) / 60) * 300) / 300
