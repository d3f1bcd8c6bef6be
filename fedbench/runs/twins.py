"""Cells that are equal in all that matters: one of them is computed, the others are written down from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.registry.unread import essence
from fedbench.results import read_index, read_manifest
from fedbench.results.identity import id_in
from fedbench.results.status import HALVED
from fedbench.runs.plan import Cell

Manifest = Mapping[str, Any]
Totals = Mapping[str, Manifest]
FAR = ("finished", HALVED)  # how a cell has ended that others may be taken from


@dataclass(eq=False)
class Kin:
    """Cells of a run that are equal in all that matters, and the folders of such cells that have a result.

    before: by id, after which round a cell was the last time, whose checkpoint is there.
    """

    cells: list[Cell] = field(default_factory=list)
    done: list[Path] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)

    def first(self, at_work: Callable[[Cell], bool], left: Callable[[Cell], bool]) -> Cell | None:
        """Of those that are left the one to be computed: one that somebody is at already, else the one that came
        furthest, else the first."""
        there = filter(left, self.cells)
        return max(there, key=lambda cell: (at_work(cell), self.before.get(cell.id, 0)), default=None)


def twins(
    missing: Iterable[Cell], totals: Totals, before: Mapping[str, Manifest | None], done: Mapping[str, list[Path]]
) -> dict[str, Kin]:
    """The kin of each cell that is to be computed, by its id; none of one that is equal to no other.

    totals: by id, what cells will cost. What that is not known of is left alone: it cannot be built, or is not
    applicable, and of cells that are equal it is the same · before: what is on disk of them · done: folders of cells
    that have a result, by their essence.
    """
    found: dict[tuple[str, str], Kin] = {}
    priced = [cell for cell in missing if "flops" in totals.get(cell.id, {})]
    many = Counter(cell.essence for cell in priced)
    for cell in priced:
        if many[cell.essence] == 1 and not done.get(cell.essence):
            continue
        key = cell.essence, json.dumps(totals[cell.id], sort_keys=True)
        kin = found.setdefault(key, Kin(done=list(done.get(cell.essence, ()))))
        kin.cells.append(cell)
        manifest = before.get(cell.id) or {}
        kin.before[cell.id] = 0 if "computed_as" in manifest else manifest.get("round", 0)
    return {cell.id: kin for kin in found.values() if len(kin.cells) > 1 or kin.done for cell in kin.cells}


def mark(missing: Iterable[Cell], kin: Mapping[str, Kin]) -> None:
    """Tell cells whether they await a twin."""
    for cell in missing:
        own = kin.get(cell.id)
        cell.awaits = False
        if own is not None:
            first = None if own.done else own.first(lambda cell: False, lambda cell: True)
            cell.awaits = first is None or first.id != cell.id


def as_others(
    cells: Iterable[Cell], totals: Totals, manifests: Mapping[str, Manifest | None] = MappingProxyType({})
) -> dict[str, Cell]:
    """Of a plan: by id, of which cell each is a copy, or would be; none for those that are computed, or were.
    manifests: what is on disk of them, by their ids."""
    there = {id: one for id, one in manifests.items() if one is not None}
    own = {id for id, one in there.items() if one["status"] in FAR and "computed_as" not in one}
    found: dict[str, Cell] = {}
    for kin in dict.fromkeys(twins(cells, totals, {}, {}).values()):
        first = max(kin.cells, key=lambda cell: cell.id in own)
        found |= {cell.id: first for cell in kin.cells if cell is not first and cell.id not in own}
    return found


def done_before(
    missing: Collection[Cell],
    cells: Iterable[Cell],
    before: Mapping[str, Manifest | None],
    suite_folder: Path,
    registry: Registry,
) -> dict[str, list[Path]]:
    """The folders in which twins of what is missing have a result already, by their essence: of these cells of the run,
    and of others that the suite's index names."""
    found, wanted = dict[str, list[Path]](), dict[str, int]()
    for cell in missing:
        wanted[cell.essence] = max(cell.rounds, wanted.get(cell.essence, 0))

    def note(matters: str, manifest: Manifest, folder: Path) -> None:
        if matters not in wanted or manifest["status"] not in FAR:
            return
        if manifest["status"] == "finished" or manifest.get("round", 0) >= wanted[matters]:
            found.setdefault(matters, []).append(folder)

    undone = {cell.id for cell in missing}
    for cell in cells:
        if cell.id not in undone and (manifest := before.get(cell.id)):
            note(cell.essence, manifest, cell.folder_in(suite_folder))
    alike = {(point.seed, point.backbone, point.dataset) for cell in missing for point in cell.points}
    index = read_index(suite_folder) if wanted else None
    names = {e.cell for e in (index.entries if index else ()) if (e.seed, e.backbone, e.dataset) in alike}
    for name in sorted(name for name in names if id_in(name) not in before):
        with suppress(UserError, KeyError, TypeError):  # of a suite that was another then, whose plugins may be gone
            if manifest := read_manifest(suite_folder / name):
                parts = (manifest["config"], manifest["fingerprints"], manifest["versions"])
                note(essence(*parts, registry), manifest, suite_folder / name)
    return found
