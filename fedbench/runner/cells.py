"""From a suite's points to its cells: identities, folders, and equal points as one cell under all their names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench import __version__
from fedbench.data.sources import located
from fedbench.machine import package_version
from fedbench.registry.assets import Assets
from fedbench.registry.cache_key import idle_plugins, unread
from fedbench.registry.catalogue import references
from fedbench.registry.registry import Registry
from fedbench.results.files import damage
from fedbench.results.identity import NUMERICAL, identity
from fedbench.results.index import Entry
from fedbench.results.status import DAMAGED, HALVED, INTERRUPTED, PENDING
from fedbench.results.store import cell_folders
from fedbench.suite import Point


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
    awaits: bool = False

    @property
    def essence(self) -> str:
        return self.id

    @property
    def rounds(self) -> int:
        """How many it is to compute."""
        T: int = self.config["train"]["rounds"]
        return min(self.until or T, T)

    def folder_in(self, suite_folder: Path) -> Path:
        """Where it lies while it is at work, and what is not packed of it after that."""
        return cell_folders(suite_folder)(self.id)

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


def cells_of(points: Iterable[Point], registry: Registry, assets: Assets) -> list[Cell]:
    """One cell for all points that are equal in what their methods read, in the order of the suite.

    Its configuration is that of the first of its points. Raises UserError where data or weights are not there.
    """
    found: dict[str, Cell] = {}
    for point in points:
        config, fingerprints = point.config, assets.fingerprints(point.config)
        ignored = unread(config, registry.catalogue)
        idle = idle_plugins(config, ignored, registry) if ignored & config.keys() else ()
        versions = {name: version for name, version in versions_of(config, registry).items() if name not in idle}
        id = identity(config, fingerprints, versions, ignored)
        if id in found:
            found[id].points.append(point)
        else:
            root = _root(config["data"], assets)
            found[id] = Cell(id, config, fingerprints, versions, [point], root, ignored=tuple(sorted(ignored)))
    return list(found.values())


def _root(data: Mapping[str, Any], assets: Assets) -> str | None:
    """The whole path of a root that is relative or elsewhere, for whoever computes elsewhere or later."""
    here = located(data, assets.base)
    return None if here is data else os.path.join(os.getcwd(), here["root"])


def folders_of(cells: Iterable[Cell], suite_folder: Path) -> dict[str, Path]:
    """Where the results of each lie, by its id, as `Cell.folder_in` says; all are looked for at once."""
    places = cell_folders(suite_folder)
    return {cell.id: places(cell.id) for cell in cells}


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


def status(cell: Cell, folder: Path, manifest: Mapping[str, Any] | None) -> str:
    """What is on disk of a cell, in this folder with this manifest: `pending`, the manifest's status, or `damaged`
    where it is finished and a file is missing or torn. A halved one that is to come further is interrupted."""
    if manifest is None:
        return PENDING
    if manifest["status"] == HALVED:
        return HALVED if manifest.get("round", 0) >= cell.rounds and not damage(folder, manifest) else INTERRUPTED
    return DAMAGED if manifest["status"] == "finished" and damage(folder, manifest) else str(manifest["status"])


def versions_of(config: dict[str, Any], registry: Registry) -> dict[str, str]:
    """Versions of fedbench, of the numerical packages and of every plugin that the configuration names."""
    versions = {"fedbench": __version__} | {name: package_version(name) or "none" for name in NUMERICAL}
    for kind, ref in references(config):
        plugin = registry.catalogue.find(kind, ref["name"]).plugin
        versions[registry.label(plugin)] = registry.version(plugin)
    return versions
