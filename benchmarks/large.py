"""A large results folder made of one small cell, many times: valid ids, seals and hashes, invented scores.

`python benchmarks/large.py FOLDER` makes four suites of 2,500 cells with 500 rows of rounds each.
"""

from __future__ import annotations

import copy
import random
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_bytes
from fedbench.results import load, merge_index, read_index
from fedbench.results.columns import SIMULATED
from fedbench.results.documents import sealed_text
from fedbench.results.identity import identity
from fedbench.results.index import CELLS, Entry, change_index
from fedbench.results.pack import pack
from fedbench.results.tables import table_bytes

CELL = Path(__file__).parents[1] / "results/reference/quickstart"
METHODS = (
    "alllarge", "fedra", "depthfl", "inclusivefl", "allsmall", "head_only", "scalefl", "hetlora", "flora", "feddyn",
)  # fmt: skip
DOMAINS = ("solid", "outline", "texture", "dim")
DEPTHS = (12, 10, 8, 6, 4, 3, 12, 8, 6, 4)


@dataclass(frozen=True)
class Size:
    """How many suites, scenarios in each, values of their sweep, methods, seeds, rounds and clients."""

    suites: int = 4
    scenarios: int = 10
    variants: int = 5
    methods: int = 10
    seeds: int = 5
    rounds: int = 50
    clients: int = 10

    @property
    def cells(self) -> int:
        return self.suites * self.scenarios * self.variants * self.methods * self.seeds


def make(root: Path, size: Size = Size()) -> None:
    """Write the folder, packed; all suites have the cells of the first one."""
    pattern = next(r.manifest for r in load([CELL]) if r.entry.method == "fedra")
    folder, entries = root / "large0", []
    for scenario in range(size.scenarios):
        for method in METHODS[: size.methods]:
            shared = _shared_tables(size, method, scenario)
            for variant, seed in ((v, s) for v in range(size.variants) for s in range(size.seeds)):
                place = (scenario, method, variant, seed)
                entries.append(_cell(folder, pattern, place, {**shared, "eval": _scores(size, place)}))
    merge_index(folder, folder.name, entries)
    pack(folder)
    packed = read_index(folder)
    assert packed
    for number in range(1, size.suites):
        copied = root / f"large{number}"
        copied.mkdir()
        for table in folder.glob("*.parquet"):
            shutil.copy(table, copied)
        change_index(copied, copied.name, lambda own: replace(packed, suite=own.suite))


def _cell(folder: Path, pattern: Mapping[str, Any], place: tuple, tables: Mapping[str, bytes]) -> Entry:
    """Write one cell; returns its name."""
    scenario, method, variant, seed = place
    manifest = copy.deepcopy({key: value for key, value in pattern.items() if key not in ("digest", "tables")})
    config, rank = manifest["config"], variant + 2
    config["method"] = {**config["method"], "name": method}
    config["adapter"]["rank"], config["seed"] = rank, seed
    config["data"]["draw"] = scenario
    manifest["id"] = identity(config, manifest["fingerprints"], manifest["versions"])
    manifest["seconds"], manifest["status"] = 20.0 + seed, "finished"
    manifest["files"] = {
        f"{kind}.parquet": {"size": len(content), "sha256": hash_of_bytes(content)} for kind, content in tables.items()
    }
    cell = folder / CELLS / manifest["id"]
    cell.mkdir(parents=True)
    for kind, content in tables.items():
        (cell / f"{kind}.parquet").write_bytes(content)
    (cell / "manifest.json").write_text(sealed_text(manifest))
    named = (f"place{scenario}", method, f"adapter.rank={rank}", seed, cell.name)
    return Entry(*named, config["backbone"]["name"], config["data"]["name"], config["profile"])


def _shared_tables(size: Size, *place: object) -> dict[str, bytes]:
    """What the clients did, which is the same for all seeds and values of a sweep."""
    draw = random.Random(repr(place))
    rounds = [_row(t, n, draw) for t in range(1, size.rounds + 1) for n in range(size.clients)]
    exchange = [
        {"round": t, "what": what, "bytes_down": bytes_down, "bytes_up": bytes_up}
        for t in range(1, size.rounds + 1)
        for what, bytes_down, bytes_up in (("adapters", 3_000_000 + t, 1_500_000), ("head", 40_000, 40_000))
    ]
    return {"rounds": table_bytes("rounds", rounds), "exchange": table_bytes("exchange", exchange)}


def _row(t: int, client: int, draw: random.Random) -> dict[str, Any]:
    layers = sorted(draw.sample(range(12), DEPTHS[client % len(DEPTHS)]))
    return {
        "round": t, "client": client, "domain": DOMAINS[client % len(DOMAINS)], "capacity": len(layers),
        "layers": layers, "trained_layers": layers, "rank": None, "examples": 1200, "steps": 38,
        "arrived": draw.random() > 0.02, "loss": 2.0 / t + draw.random(), "bytes_down": 1_000_003 * len(layers),
        "bytes_up": 500_000 * len(layers), "flops": 2_000_000_000 * len(layers),
        "memory_bytes": 10_000_000 * len(layers), "workspace_bytes": None, "seconds": draw.random(),
        **dict.fromkeys(SIMULATED),
    }  # fmt: skip


def _scores(size: Size, place: tuple) -> bytes:
    """Accuracies after every fifth round, on validation images too."""
    draw = random.Random(repr(place))
    level = 0.5 + METHODS.index(place[1]) / 30 + draw.gauss(0, 0.02)
    tested = range(5, size.rounds + 1, 5) if size.rounds > 5 else [size.rounds]
    rows = [
        {"round": t, "split": split, "domain": domain, "client": -1, "metric": metric, "value": value, "examples": 300}
        for t in tested
        for split in ("test", "validation")
        for domain in DOMAINS
        for metric, value in _values(level - 1 / (t + 4) + draw.gauss(0, 0.01))
    ]
    return table_bytes("eval", rows)


def _values(accuracy: float) -> Iterator[tuple[str, float]]:
    found = round(300 * min(1.0, max(0.0, accuracy))) / 300
    yield "accuracy", found
    yield "loss", 2.5 * (1 - found)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
