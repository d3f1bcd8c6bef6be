"""Migrate result folders of version 1 to packed tables, new ids and one rule for memory.

    python results/migrate.py results/reference/*        # each a suite's folder; done twice it changes nothing

- What a method ignores is no part of an id any more: cells that become equal are merged. The one that was computed is
  kept; a copy whose scores are others is named.
- `workspace_bytes` of head_only is computed from the model's shapes where an older fedbench did not record it.
- Cells are packed. Nothing is deleted before the new index is in place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedbench.method import Setup
from fedbench.registry.assets import Assets
from fedbench.registry.catalogue import unread
from fedbench.registry.registry import Registry, idle_plugins
from fedbench.results import read_index, read_manifest
from fedbench.results.columns import COLUMNS
from fedbench.results.content import digest_of_table
from fedbench.results.documents import locked
from fedbench.results.files import TABLES, checked_table, has_table
from fedbench.results.identity import identity
from fedbench.results.index import INDEX, commit
from fedbench.results.manifest import MANIFEST
from fedbench.results.pack import Ended, with_cells
from fedbench.results.store import cell_folders
from fedbench.simulation.method_costs import MethodCosts
from fedbench.types import Size

WITH_WORKSPACE = "head_only"  # the method whose cells were computed before and after the column came


@dataclass(frozen=True)
class Old:
    """A cell of version 1, with the id that it has from now on."""

    folder: Path
    manifest: dict[str, Any]
    id: str
    ignored: tuple[str, ...]
    versions: dict[str, str]

    @property
    def rank(self) -> tuple[bool, bool]:
        """Which of several equal cells is kept: one with a result, and one that was computed."""
        return self.manifest["status"] in ("finished", "not_applicable"), "computed_as" not in self.manifest


def old_cell(folder: Path, registry: Registry) -> Old | None:
    """A cell as it lies in its folder; None where it was not begun."""
    if (manifest := read_manifest(folder)) is None:
        return None
    config, catalogue = manifest["config"], registry.catalogue
    ignored = unread(config, catalogue)
    idle = idle_plugins(config, ignored, registry) if ignored & config.keys() else ()
    versions = {name: version for name, version in manifest["versions"].items() if name not in idle}
    id = identity(config, manifest["fingerprints"], versions, ignored)
    return Old(folder, manifest, id, tuple(sorted(ignored)), versions)


def tables_of(old: Old) -> dict[str, pa.Table]:
    kinds = [kind for kind in COLUMNS if has_table(kind, old.folder, old.manifest)]
    return {kind: checked_table(kind, old.folder, old.manifest) for kind in kinds}


def with_workspace(table: pa.Table, config: Mapping[str, Any], costs: MethodCosts) -> pa.Table:
    """A table of rounds whose missing workspace is that of the model's shapes."""
    method = costs._simulation(config, costs._federated_data(config), Setup).method
    known = {capacity: method.cost(Size(capacity), 1) for capacity in set(table["capacity"].to_pylist())}
    values = [known[capacity].workspace_bytes or None for capacity in table["capacity"].to_pylist()]
    place = table.schema.get_field_index("workspace_bytes")
    return table.set_column(place, table.schema.field(place), pa.array(values, pa.int64()))


def ended(old: Old, costs: MethodCosts, lines: list[str]) -> Ended:
    """A cell as it is packed, under its new id; what cannot be computed of it is added to `lines`."""
    manifest = {key: value for key, value in old.manifest.items() if key not in ("computed_as", "result_version")}
    manifest |= {"id": old.id, "versions": old.versions}
    manifest |= {"ignored": list(old.ignored)} if old.ignored else {}
    tables, config = tables_of(old), old.manifest["config"]
    if config["method"]["name"] == WITH_WORKSPACE and "rounds" in tables and not config.get("devices"):
        lacks = tables["rounds"]["workspace_bytes"].null_count == len(tables["rounds"])
        try:
            tables["rounds"] = with_workspace(tables["rounds"], config, costs) if lacks else tables["rounds"]
        except Exception as error:  # its data set is not on this machine, say
            lines.append(f"{old.folder}: its workspace is not known: {str(error).splitlines()[0]}")
    return Ended(manifest, tables)


def migrate(folder: Path, registry: Registry) -> list[str]:
    """Migrate one suite's folder; returns a line on everything that is worth a look."""
    lines, costs = [], MethodCosts(Assets(registry))
    with locked(folder / INDEX):
        index, places = read_index(folder), cell_folders(folder)
        if index is None or index.tables:
            return [f"{folder}: nothing to migrate"]
        before = dict.fromkeys(entry.cell for entry in index.entries)
        cells = {id: old_cell(places(id), registry) for id in before}
        groups: dict[str, list[Old]] = {}
        for old in filter(None, cells.values()):
            groups.setdefault(old.id, []).append(old)
        kept = {id: max(some, key=lambda old: old.rank) for id, some in groups.items()}
        for id, some in groups.items():
            lines += [line for old in some if old is not kept[id] for line in differences(kept[id], old)]
        entries = [
            replace(entry, cell=old.id, ignored=given_by(old) or None) if (old := cells[entry.cell]) else entry
            for entry in index.entries
        ]
        new = {id: ended(old, costs, lines) for id, old in kept.items()}
        commit(folder, with_cells(folder, replace(index, entries=entries), new))
        for old in filter(None, cells.values()):
            for name in (MANIFEST, *TABLES):
                (old.folder / name).unlink(missing_ok=True)
            if not any(old.folder.iterdir()):
                old.folder.rmdir()
    (folder / f".{INDEX}.lock").unlink(missing_ok=True)
    copies = sum(len(some) - 1 for some in groups.values())
    return [f"{folder}: {len(before)} cells, {copies} of them equal to another, {len(new)} packed", *lines]


def given_by(old: Old) -> dict[str, Any]:
    """What the scenario of a cell sets of that which its method ignores."""
    return {part: old.manifest["config"][part] for part in old.ignored if part in old.manifest["config"]}


def differences(kept: Old, other: Old) -> Iterable[str]:
    """In what a cell that is merged into another differs from it."""
    mine, theirs = tables_of(kept), tables_of(other)
    for kind in COLUMNS:
        both = [tables[kind] for tables in (mine, theirs) if kind in tables]
        if len({digest_of_table(kind, table, kept.ignored) for table in both}) > 1:
            yield f"{other.folder}: its {kind} is not that of {kept.folder.name}, which is kept"


if __name__ == "__main__":
    known = Registry()
    for given in map(Path, sys.argv[1:]):
        if (given / INDEX).is_file():
            print("\n  ".join(migrate(given, known)), flush=True)
