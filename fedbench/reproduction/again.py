"""Cells that were told, computed here: recovered as suites, compared with what is installed, run like any suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench import machine
from fedbench.disk import hash_of_bytes, write_atomically
from fedbench.errors import UserError
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.report.grouping import flatten
from fedbench.reproduction.places import places
from fedbench.reproduction.recovered import recovered
from fedbench.reproduction.told import Told
from fedbench.results import examine
from fedbench.results.said import Said
from fedbench.runs import runner
from fedbench.runs.options import Options, Preparing
from fedbench.runs.plan import Cell, cells_of, references
from fedbench.runs.run import Observe, Run
from fedbench.suite import Suite

MACHINE = ("cpu", "system", "python")  # what of a machine may change a result, and is known before the run


@dataclass(frozen=True)
class Mismatch:
    """What is not here as it was there; cells: in how many."""

    what: str
    there: str
    here: str
    cells: int


@dataclass(frozen=True)
class Plan:
    """What can be run here.

    suites: each as it was read, with its assets and the cells of it that were told · cells: by place among those told,
    its cell here · lacking: by place, why there is none.
    """

    suites: Sequence[tuple[Suite, Assets, list[Cell]]]
    cells: Mapping[int, Cell]
    lacking: Mapping[int, str]


def sample(cells: Sequence[Told], count: int | None) -> list[Told]:
    """So many of them, whatever their order, always the same: those whose ids have the lowest hashes."""
    ids = sorted({cell.id for cell in cells}, key=lambda id: hash_of_bytes(id.encode()))
    chosen = set(ids[:count])
    return [cell for cell in cells if cell.id in chosen]


def plan(cells: Sequence[Told], registry: Registry, folder: Path, roots: Sequence[str] = ()) -> Plan:
    """Recover the suites of these cells into files in the folder, and read them as anybody's. roots: of `places`.
    Raises: UserError for one that cannot be read, and where data or weights are not here."""
    lacking = {i: reason for i, cell in enumerate(cells) if (reason := _lacks(cell, registry))}
    here = places([cell for i, cell in enumerate(cells) if i not in lacking], roots)
    number_of = {id(cell): i for i, cell in enumerate(cells)}
    suites: list[tuple[Suite, Assets, list[Cell]]] = []
    found: dict[int, Cell] = {}
    for number, one in enumerate(recovered(c for i, c in enumerate(cells) if i not in lacking), 1):
        file = folder / f"recovered-{number}.yaml"
        write_atomically(file, one.text().encode())
        suite = runner.load(file, registry, roots=here)
        pairs, otherwise = one.points(suite)
        lacking |= {
            number_of[id(cell)]: f"this fedbench reads another configuration: {keys}" for cell, keys in otherwise
        }
        assets = Assets(registry, here)
        runnable = cells_of([point for _, point in pairs], registry, assets)
        of_point = {id(point): cell for cell in runnable for point in cell.points}
        found |= {number_of[id(cell)]: of_point[id(point)] for cell, point in pairs}
        if runnable:
            suites.append((suite, assets, runnable))
    return Plan(suites, found, lacking)


def _lacks(cell: Told, registry: Registry) -> str:
    """Which component that it names is not installed; "" where all are."""
    try:
        for kind, ref in references(dict(cell.config)):
            registry.catalogue.find(kind, str(ref["name"]))
    except UserError as error:
        return str(error)
    except (KeyError, TypeError) as error:
        raise UserError(f"{cell.title}: not a configuration of fedbench ({error!r:.80})") from error
    return ""


def settings(cells: Sequence[Told], here: Mapping[int, Cell]) -> list[Mismatch]:
    """The versions, fingerprints and machines that are not the same, and in how many cells."""
    counts: dict[tuple[str, str, str], int] = {}
    mine = {name: str(value) for name, value in machine.describe("cpu").items() if name in MACHINE}
    for i, cell in here.items():
        now = {"versions": cell.versions, "fingerprints": cell.fingerprints, "machine": mine}
        old, new = (dict(_flat(origin, now)) for origin in (cells[i].origin, now))
        for what in dict.fromkeys((*old, *new)):
            if old.get(what) != new.get(what):
                key = (what, old.get(what, ""), new.get(what, ""))
                counts[key] = counts.get(key, 0) + 1
    return [Mismatch(*key, n) for key, n in counts.items()]


def _flat(origin: Mapping[str, Any], like: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    for part, names in like.items():
        given = origin.get(part) or {}
        yield from flatten({k: v for k, v in given.items() if part != "machine" or k in names}, part)


def run(found: Plan, registry: Registry, options: Options, observe: Observe | None, preparing: Preparing) -> None:
    """Compute what is not there yet; what is finished is kept. Every cell is computed: none is believed to be equal to
    another."""
    options = replace(options, every_cell=True)
    for suite, assets, cells in found.suites:
        one = Run.prepare(suite, cells, registry, assets, options, preparing=preparing)
        one.close(one.compute(observe))


def came_to(found: Plan, results: Path) -> dict[int, Said | str]:
    """By place, what the cell here says, or why it says nothing."""
    folders = {suite.name: results / suite.name for suite, _, _ in found.suites}
    there = examine(list(folders.values())).read(("eval", "rounds")).results if folders else []
    by_id = {r.manifest["id"]: r for r in there if r.manifest}
    here: dict[int, Said | str] = dict(found.lacking)
    for i, cell in found.cells.items():
        result = by_id.get(cell.id)
        if result is None:
            here[i] = "it was not computed"
        elif result.status != "finished":
            here[i] = f"{result.status}: {result.fault or result.manifest.get('reason') or 'no reason is known'}"
        else:
            here[i] = result.digest.said
    return here
