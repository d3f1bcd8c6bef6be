"""Cells and models to export, and exports that are loaded again."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch
from torch import nn

from fedbench.models.backbone import Blocks
from fedbench.models.globalmodel import GlobalModel
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.cells import cells_of
from fedbench.runner.runner import load
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.types import Exit


def loaded(lines: str) -> nn.Module:
    """The model that the printed lines make."""
    names: dict = {}
    exec(lines, names)
    return names["model"]


def global_model(model: nn.Module, layers, registry=None, targets="last_fc") -> GlobalModel:
    """Some layers of a model with LoRA drawn at random, B too."""
    blocks = Blocks(model)
    if registry:
        registry.make("adapter", {"name": "lora", "rank": 2, "alpha": 4, "targets": targets})(blocks)
        for name, parameter in blocks.named_parameters():
            if "lora" in name:
                nn.init.normal_(parameter.data, generator=torch.Generator().manual_seed(len(name)))
    blocks.add_classifier("head", 5)
    return GlobalModel(blocks.eval(), layers, [Exit(len(layers), "head")])


def computed(suite: Path, registry: Registry, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Path]:
    """The folder, next to the suite, of each cell that is wanted by its scenario and method."""
    found = {}
    chosen = [point for point in load(suite, registry).points() if (point.scenario, point.method) in wanted]
    for cell in cells_of(chosen, registry, CachedFacts(registry)):
        place = suite.parent / cell.id
        done = worker.run(CellJob(place, cell.manifest(), "cpu", []))
        assert done["status"] == "finished", done["reason"]
        found[cell.points[0].scenario, cell.points[0].method] = place
    return found
