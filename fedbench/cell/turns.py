"""Small cells in turn in one process: what they have in common is made once, and each finds the process as it was.

A process goes on to another cell only after one that ended well and left it as it was found (`found`). The generators
that a process shares, and the warnings it has given, are set back.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from fedbench.cell.found import Found
from fedbench.cell.order import Order
from fedbench.models.backbone import Source
from fedbench.models.copying import copied
from fedbench.registry.registry import Registry, dataset_of, dataset_ref
from fedbench.results.status import HALVED, KEPT
from fedbench.seeding import seed_of
from fedbench.types import Dataset

MOST = 200  # cells of one process, whose memory grows with what it has met
WELL = (*KEPT, HALVED)

Config = Mapping[str, Any]


class Shared:
    """What cells in turn have in common: plugins that are imported, images that are decoded, a backbone that is read.

    number: which cell of the process is at work, from 0.
    """

    def __init__(self, plugins: list[str]) -> None:
        self.registry, self.number = Registry(plugins), 0
        self._sources: dict[str, Source] = {}
        self._datasets: dict[str, Dataset] = {}

    def source(self, config: Config) -> Source:
        """The backbone of a cell, for this cell to change; read once, where the seed draws nothing of it. Raises
        UserError."""
        key = json.dumps(config["backbone"], sort_keys=True)
        if key in self._sources:
            return _own(self._sources[key])
        source, drawn = source_of(config, self.registry)
        if not drawn:
            self._sources = {key: source}
            return _own(source)
        return source

    def dataset(self, config: Config, image_size: int) -> Dataset:
        """The images of a cell. Raises UserError."""
        data = config["data"]
        key = json.dumps([dataset_ref(data), data.get("image_size") or image_size], sort_keys=True)
        if key not in self._datasets:
            found = dataset_of(data, self.registry, image_size)
            self._datasets = {key: replace(found, load=functools.cache(found.load))}
        return self._datasets[key]


def _own(source: Source) -> Source:
    return replace(source, model=copied(source.model))


def source_of(config: Config, registry: Registry, load: bool = True) -> tuple[Source, bool]:
    """The backbone of a cell, and whether the seed has drawn any of it, as `pretrained: false` has it. Raises
    UserError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(config["seed"], use="backbone"))
        before = torch.get_rng_state()
        source = registry.make("backbone", config["backbone"], load=load)
        return source, not torch.equal(before, torch.get_rng_state())


def in_turn(
    order: Order,
    compute: Callable[[Order, Shared | None], str],
    stopping: Callable[[], bool],
    onward: Callable[[], str | None],
) -> None:
    """Compute a cell, and then those that `onward` gives, as long as one process may.

    compute: returns how a cell ended · onward: asks for the next job, where there is one.
    """
    if order.turn is None:
        compute(order, None)
        return
    found, shared = Found(), Shared(order.plugins)
    while shared.number < MOST:
        with warnings.catch_warnings():  # and each cell is warned anew
            status = compute(order, shared)
        if stopping() or status not in WELL or found.changed() or (job := onward()) is None:
            return
        found.draw_as_before()
        order = Order.from_json(job)
        shared.number += 1
