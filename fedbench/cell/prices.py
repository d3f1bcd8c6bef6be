"""What many cells will cost: a method and its model are built once for all cells that differ in nothing it looks at."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from fedbench.cell.alike import of_one_method
from fedbench.cell.ledger import Ledger
from fedbench.cell.trial import Trial, check_ranks
from fedbench.cell.world import World
from fedbench.errors import NotApplicable
from fedbench.method import Setup
from fedbench.registry.assets import Assets
from fedbench.types import SIZES, Scenario

Config = Mapping[str, Any]
T = TypeVar("T")

# What may tell cells apart that one method serves, by its name in the set-up. All else of a configuration is equal.
LOOKED_AT = ("seed", "clients", *SIZES, "proxy")
OF_METHODS = ("method", "adapter", "backbone", "profile", "precision", "engine")  # which no world depends on
WORLDS, METHODS, VARIANTS = 64, 4, 16  # kept at a time; the last: of one method, for what it has looked at


class _Noting:
    """Notes which of LOOKED_AT is read. A copy with changes (`dataclasses.replace`) has read them all."""

    noted: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in LOOKED_AT:
            object.__getattribute__(self, "noted").add(name)
        return object.__getattribute__(self, name)


class _Setup(_Noting, Setup):
    pass


class _Scenario(_Noting, Scenario):
    pass


@dataclass
class _Built:
    """A method that was built for one cell, or why it could not be, and what it has looked at by now."""

    config: Config
    world: World
    noted: set[str]
    trial: Trial | None = None
    reason: NotApplicable | None = None

    def fits(self, config: Config, world: World) -> bool:
        """Whether it would be the same, had it been built for another cell."""
        return all(_seen(name, self.config, self.world) == _seen(name, config, world) for name in self.noted)


class Prices:
    """The totals of cells, see `Ledger.totals`; those that one method may serve are best asked for one after the other.

    Nobody says which methods price alike under another seed or scenario: what a method reads of its set-up tells, then
    and whenever it is asked for a price.
    """

    def __init__(self, assets: Assets) -> None:
        self.assets = assets
        self._worlds: OrderedDict[str, World] = OrderedDict()
        self._built: OrderedDict[str, list[_Built]] = OrderedDict()

    def totals(self, config: Config) -> dict[str, Any]:
        """Raises UserError, NotApplicable."""
        world = self._world(config)
        if world.federation.devices is not None:  # the sizes of its clients are this cell's alone
            return self._of(self._build(config, world), config, world)
        known = _kept(self._built, of_one_method(config), METHODS, list)
        for built in known:
            if built.fits(config, world):
                totals = self._of(built, config, world)
                if built.fits(config, world):  # it may have looked at more meanwhile
                    return totals
        del known[: max(0, len(known) - VARIANTS + 1)]
        known.append(built := self._build(config, world))
        return self._of(built, config, world)

    def _of(self, built: _Built, config: Config, world: World) -> dict[str, Any]:
        if built.trial is None:
            assert built.reason is not None
            raise built.reason
        federation = world.federation if world.federation.devices is None else built.trial.federation
        check_ranks(built.trial.model, federation.scenario)
        return Ledger(config, world.dataset, federation).totals(built.trial.method, world)

    def _build(self, config: Config, world: World) -> _Built:
        built = _Built(config, world, set())

        def setup(**given: Any) -> Setup:
            made = _Setup(**{**given, "scenario": _Scenario(**vars(given["scenario"]))})
            for one in (made, made.scenario):
                object.__setattr__(one, "noted", built.noted)
            return made

        source = self.assets.source(config["backbone"])
        try:
            with torch.device("meta"):
                built.trial = Trial(
                    config, self.assets.registry, "meta", source, world.dataset, world=world, setup=setup
                )
        except NotApplicable as reason:
            built.reason = reason
        return built

    def _world(self, config: Config) -> World:
        backbone = self.assets.backbone(config["backbone"])
        dataset = self.assets.dataset(config["data"], backbone["image_size"])
        layers, half = backbone["num_layers"], (0.5, 0.5, 0.5)  # of images without pixels
        parts = {key: value for key, value in config.items() if key not in OF_METHODS}
        parts["train"] = {key: value for key, value in config["train"].items() if key != "optimizer"}
        key = json.dumps([parts, layers, backbone["image_size"]], sort_keys=True)

        def make() -> World:
            with torch.device("meta"):
                return World(config, self.assets.registry, dataset, layers, (half, half), "meta")

        return _kept(self._worlds, key, WORLDS, make)


def _seen(name: str, config: Config, world: World) -> Any:
    """What a method finds under a name of LOOKED_AT, to be compared with what it would find in another cell."""
    if name == "seed":
        return config["seed"]
    if name == "proxy":
        return config["data"].get("proxy") and id(world)
    if name == "clients":
        return id(world)  # which is there as long as what was built for it
    sizes = getattr(world.federation.scenario, name)
    return None if sizes is None else (sizes.shape, sizes.tobytes())


def _kept(known: OrderedDict[str, T], key: str, most: int, make: Callable[[], T]) -> T:
    """What is known by a key, made where it is not; the one that was asked for longest ago goes."""
    if key in known:
        known.move_to_end(key)
    else:
        known[key] = make()
        if len(known) > most:
            known.popitem(last=False)
    return known[key]
