"""Which cells of a run one process may compute in turn: small ones of equal data and backbone, whose code is ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fedbench.cell.alike import Config, in_groups
from fedbench.disk import hash_of_json
from fedbench.registry.named import references
from fedbench.registry.registry import Registry, dataset_ref
from fedbench.runs.options import Options
from fedbench.runs.plan import Cell

SMALL = 1e11  # FLOPs of training and testing: some seconds of one core
OURS = "fedbench"  # the package whose components leave nothing behind in a process, which tests hold
MADE_ONCE = ("dataset", "backbone")  # which may be anybody's: all cells of a turn have what they made

Totals = Mapping[str, Any]


def turns_of(
    cells: Iterable[Cell], totals: Mapping[str, Totals], options: Options, registry: Registry
) -> dict[str, str]:
    """The `turn` of cells that may be computed in turn with others, by their ids; see `Order`.

    totals: by id, what cells will cost (`Ledger.totals`).
    """
    if options.own_processes or options.on_gpu:
        return {}
    fit = [cell for cell in cells if _is_small(totals.get(cell.id, {})) and _is_ours(cell.config, registry)]
    found = {cell.id: _in_common(cell.config) for cell in fit}
    numbers = Counter(found.values())
    return {id: turn for id, turn in found.items() if numbers[turn] > 1}


def in_order(cells: Iterable[Cell], turns: Mapping[str, str]) -> list[Cell]:
    """Cells in an order in which those of one turn come one after the other."""
    return list(in_groups(cells, lambda cell: turns.get(cell.id, cell.id)))


def work_of(totals: Totals) -> float:
    """FLOPs of training and testing together, 0 where they are not known."""
    if "flops" not in totals:
        return 0.0
    per_image = totals["flops"] / max(1, totals["images"])  # a test image takes no more
    return float(totals["flops"] + totals["tested"] * per_image)


def _is_small(totals: Totals) -> bool:
    """Whether its work is; one that is not known is not."""
    return "flops" in totals and work_of(totals) <= SMALL


def _is_ours(config: Config, registry: Registry) -> bool:
    named = [(kind, ref["name"]) for kind, ref in references(config) if kind not in MADE_ONCE]
    return all(registry.catalogue.find(*one).package == OURS for one in named)


def _in_common(config: Config) -> str:
    return hash_of_json([dataset_ref(config["data"]), config["data"].get("image_size"), config["backbone"]])[:12]
