"""The cells of a suite: identities, folders, what a run may be asked to do with them, and why some cannot be built."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedbench import machine
from fedbench.data.sources import located
from fedbench.errors import UserError
from fedbench.registry.catalogue import references, unread
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry, idle_plugins
from fedbench.results.columns import DAMAGED, GIVEN_UP, HALVED, INTERRUPTED, KEPT, PENDING
from fedbench.results.files import believed_manifest, damage
from fedbench.results.identity import identity
from fedbench.results.index import Entry
from fedbench.results.packed_tables import folder_of
from fedbench.simulation.checkpoint import EVERY
from fedbench.simulation.provenance import versions_of
from fedbench.suite import Point, Suite
from fedbench.suite.yaml import Mark, Problems

T = TypeVar("T")
ALSO = 3  # further places in the suite that an error names

Preparing = Callable[[int, int], Any]  # takes how many cells are prepared, of how many, as their number grows


@dataclass
class Cell:
    """One cell to compute: its identity, its configuration, and every name a suite gives it."""

    id: str
    config: dict[str, Any] = field(repr=False)
    fingerprints: dict[str, str]
    versions: dict[str, str]
    points: list[Point]
    root: str | None = None  # of its data, as a whole path, where that is not what the configuration has
    until: int | None = None  # the round after which a candidate of a tuning ends for now; None: the last
    ignored: tuple[str, ...] = ()  # the parts of a configuration that its method does not read, see `registry.unread`

    @property
    def rounds(self) -> int:
        """How many it is to compute."""
        T: int = self.config["train"]["rounds"]
        return min(self.until or T, T)

    def folder_in(self, suite_folder: Path) -> Path:
        """Where it lies while it is at work, and what is not packed of it after that."""
        return folder_of(suite_folder, self.id)

    @property
    def title(self) -> str:
        """What a person calls it: scenario, method, variant if any, candidate if it is one, seed."""
        first = self.points[0]
        variant = f" [{first.variant}]" if first.variant else ""
        candidate = "" if first.candidate is None else f" · candidate {first.candidate}"
        return f"{first.scenario} · {first.method}{variant}{candidate} · seed {first.seed}"

    def manifest(self) -> dict[str, Any]:
        """What is known before the cell runs."""
        return {
            "id": self.id,
            "config": self.config,
            "fingerprints": self.fingerprints,
            "versions": self.versions,
            "reason": None,
            "traceback": None,
            **({"root": self.root} if self.root else {}),
            **({"ignored": list(self.ignored)} if self.ignored else {}),
        }


def cells_of(points: Iterable[Point], registry: Registry, facts: CachedFacts) -> list[Cell]:
    """One cell for all points that are equal in what their methods read, in the order of the suite.

    Its configuration is that of the first of its points. Raises UserError where data or weights are not there.
    """
    found: dict[str, Cell] = {}
    for point in points:
        config, fingerprints = point.config, facts.fingerprints(point.config)
        ignored = unread(config, registry.catalogue)
        idle = idle_plugins(config, ignored, registry) if ignored & config.keys() else ()
        versions = {name: version for name, version in versions_of(config, registry).items() if name not in idle}
        id = identity(config, fingerprints, versions, ignored)
        if id in found:
            found[id].points.append(point)
        else:
            root = _root(config["data"], facts)
            found[id] = Cell(id, config, fingerprints, versions, [point], root, ignored=tuple(sorted(ignored)))
    return list(found.values())


def _root(data: Mapping[str, Any], facts: CachedFacts) -> str | None:
    """The whole path of a root that is relative, for workers in other folders, on other machines or later."""
    here = located(data, facts.base)
    return None if here is data else os.path.join(os.getcwd(), here["root"])


def folders_of(cells: Iterable[Cell], suite_folder: Path) -> dict[str, Path]:
    """Where the results of each lie, by its id."""
    return {cell.id: cell.folder_in(suite_folder) for cell in cells}


def entries(cells: Iterable[Cell]) -> list[Entry]:
    """Every name of every cell, for the index of a results folder."""
    return [
        Entry(
            scenario=point.scenario,
            method=point.method,
            variant=point.variant,
            seed=point.seed,
            cell=cell.id,
            backbone=point.backbone,
            dataset=point.dataset,
            profile=point.config["profile"],
            shared=point.shared,
            candidate=point.candidate,
            ignored={part: point.config[part] for part in cell.ignored if part in point.config} or None,
        )
        for cell in cells
        for point in cell.points
    ]


def manifests_of(folders: Mapping[str, Path], suite_folder: Path) -> dict[str, dict[str, Any] | None]:
    """What is on disk of each cell, by its id; no cell is looked for where the suite has no folder yet."""
    has_folder = suite_folder.is_dir()
    return {id: believed_manifest(folder) if has_folder else None for id, folder in folders.items()}


def status(cell: Cell, folder: Path, manifest: Mapping[str, Any] | None) -> str:
    """What is on disk of a cell, in this folder with this manifest: `pending`, the manifest's status, or `damaged`
    where it is finished and a file is missing or torn. A halved one that is to come further is interrupted."""
    if manifest is None:
        return PENDING
    if manifest["status"] == HALVED:
        return HALVED if manifest.get("round", 0) >= cell.rounds and not damage(folder, manifest) else INTERRUPTED
    return DAMAGED if manifest["status"] == "finished" and damage(folder, manifest) else str(manifest["status"])


@dataclass(frozen=True)
class Options:
    """See `run` of the command line; the names are the same."""

    results: str = "results"
    device: str = "auto"
    jobs: str | int = "auto"
    executor: str | dict[str, Any] = "local"
    timeout: float | None = None
    memory_limit: int | None = None
    retry_failed: bool = False
    max_failures: int | None = None
    force: bool = False
    shard: tuple[int, int] | None = None
    checkpoint_every: float = EVERY
    gpu_fraction: float | None = None

    def workers(self) -> int:
        """`auto` is one for each core, or as many as share a GPU where there is one."""
        if self.jobs != "auto":
            return int(self.jobs)
        return int(1 / (self.gpu_fraction or 1.0) + 1e-9) * max(1, len(self.gpus())) if self.on_gpu else machine.cores()

    @property
    def on_gpu(self) -> bool:
        """Whether cells are computed on one."""
        return self.device.startswith("cuda") or (self.device == "auto" and machine.has_gpu())

    def gpus(self) -> list[str]:
        """Those of this machine that cells are dealt to; of `cuda:N` the N-th. Raises UserError where it has none."""
        there = machine.visible_gpus() if self.on_gpu else []
        if self.device.startswith("cuda:"):
            number = int(self.device.removeprefix("cuda:"))
            if number >= len(there):
                last = f"its last GPU is cuda:{len(there) - 1}" if there else "it has none"
                raise UserError(f"--device {self.device}: there is no such GPU on this machine, {last}")
            return [there[number]]
        return there

    def gpu(self) -> float:
        """The share of a GPU that a cell asks a cluster for; with `auto` none, unless a share is named."""
        if self.device == "cpu":
            return 0.0
        return self.gpu_fraction or float(self.device.startswith("cuda"))

    def asked(self) -> dict[str, Any]:
        """What executors are given, if they have parameters of these names."""
        most = None if self.jobs == "auto" else int(self.jobs)
        limits = {"timeout": self.timeout, "memory_limit": self.memory_limit}
        return {"workers": self.workers(), "most": most, "gpu": self.gpu(), "gpus": self.gpus(), **limits}

    def of_shard(self, items: Sequence[T], key: Callable[[T], str]) -> list[T]:
        """The cells, or contests of a tuning, of this shard: (i, n) is the i-th of n, from 1. They are dealt out in the
        order of their keys, so that shards have as much to compute and mix methods."""
        part, parts = self.shard or (1, 1)
        mine = set(sorted(map(key, items))[part - 1 :: parts])
        return [item for item in items if key(item) in mine]

    def wants(self, status: str) -> bool:
        """Whether a cell of which this is on disk is to be computed (`status` of this module)."""
        if status in (*KEPT, HALVED):
            return self.force
        return status not in GIVEN_UP or self.retry_failed or self.force


class BuildErrors:
    """Why cells of a suite are refused: each reason once, with the places in the suite of what is to blame.

    A cell whose plugin refuses it is its own failure, and the others run; the suite is refused where an option that it
    sets is to blame, or where no cell is left.
    """

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.marks: dict[str, dict[Mark, None]] = {}  # of each reason
        self.refused, self.by_option = 0, False

    def add(self, cell: Cell, error: UserError) -> None:
        """Note why a cell cannot be built. One beyond the edge of a tuning's space fails by itself."""
        if self.suite.is_beyond(cell.points[0]):
            return
        self.refused += 1
        self.by_option |= bool(error.option)
        self.marks.setdefault(str(error), {})[self.suite.mark(cell.points[0], error.option)] = None

    def raise_any(self, of: int) -> None:
        """Raises UserError with the reasons, in the order of the suite, unless some of so many cells can run and no
        option is to blame."""
        if not (self.by_option or self.refused == of):
            return
        problems = Problems()
        for reason, (first, *others) in self.marks.items():
            more = f" and {len(others) - ALSO} more" if len(others) > ALSO else ""
            also = f"\n  the same at {', '.join(map(str, others[:ALSO]))}{more}" if others else ""
            problems.add(first, reason + also)
        problems.raise_any()


def doubts_of(configs: Iterable[Mapping[str, Any]], facts: CachedFacts) -> list[str]:
    """What is wrong with the data of cells that are computed all the same, a sentence each, with the data set's name.
    Data that cannot be had say so where they are used."""
    asked, found = set[str](), dict[str, None]()
    for config in configs:
        data = {key: value for key, value in config["data"].items() if key != "partition"}
        key = json.dumps([data, config["backbone"], config["evaluation"].get("by")], sort_keys=True)
        if key not in asked:
            asked.add(key)
            with suppress(Exception):  # of a plugin, too
                found |= dict.fromkeys(f"{data['name']}: {doubt}" for doubt in facts.doubts(config))
    return list(found)


def names_taken(configs: Iterable[Mapping[str, Any]], executor: str, registry: Registry) -> list[str]:
    """Warnings where a suite names what fedbench and an installed package have by one name; fedbench's is used."""
    if not registry.catalogue.refused:
        return []
    named = {(kind, str(ref["name"])) for config in configs for kind, ref in references(config)}
    return registry.catalogue.refusals({*named, ("executor", executor)})


def without_hub(configs: Iterable[Mapping[str, Any]], registry: Registry) -> str:
    """A warning where cells fetch weights from the Hugging Face Hub and that does not answer; else "".

    Each cell would wait for the Hub by itself, for most of a minute. With HF_HUB_OFFLINE set none does.
    """
    names = {
        str(ref["name"])
        for ref in (config["backbone"] for config in configs)
        if ref.get("pretrained", True) is True and registry.catalogue.find("backbone", ref["name"]).name == "timm"
    }
    if not names or os.environ.get("HF_HUB_OFFLINE") or machine.hub_answers():
        return ""
    return (
        f"the Hugging Face Hub does not answer, from which the weights of {', '.join(sorted(names))} come. Weights in "
        "its cache are used; without them cells fail at once. `pretrained: path/to/model.safetensors` needs no network."
    )
