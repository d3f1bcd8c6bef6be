"""Cost estimates from shapes: a method is built once for all cells that differ in nothing that it reads."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from fedbench import machine
from fedbench.devices.feasibility import outlooks
from fedbench.devices.fitting import Costs, offered
from fedbench.errors import NotApplicable
from fedbench.method import Setup
from fedbench.models.meta_init import shapes_alone
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.simulation.cost_estimate import Tell, answer_each, of_one_method
from fedbench.simulation.federated_data import FederatedData
from fedbench.simulation.federation import Federation
from fedbench.simulation.round_records import RoundRecords
from fedbench.simulation.simulation import Simulation, check_ranks, fitted
from fedbench.types import SIZES, Client, Dataset, Device, Scenario, Size

Config = Mapping[str, Any]
T = TypeVar("T")

# What may tell cells apart that one method serves, by its name in the set-up. All else of a configuration is equal.
LOOKED_AT = ("seed", "clients", *SIZES, "proxy")
OF_METHODS = ("method", "adapter", "backbone", "profile", "precision", "engine")  # which no world depends on
WORLDS, METHODS, VARIANTS = 64, 8, 16  # kept at a time; the last: of one method, for what it has looked at
REGISTERED = 3_000_000  # clients of all worlds that are kept, unless one alone has more


def estimates(asked: Mapping[str, Any], tell: Tell) -> None:
    """In a child process: tell what cells cost, see `cost_estimates`.

    Args:
        asked: the plugin `files` and the `base` of `Assets`, and the `cells`.
        tell: see `answer_each`.
    """
    machine.leave_alone()
    registry = Registry(asked["files"], in_place=True)
    known = Prices(Assets(registry, asked["base"]))
    answer_each(asked["cells"], registry, lambda id, config: known.totals(config), tell)


def feasible(asked: Mapping[str, Any], tell: Tell) -> None:
    """In a child process: tell which sizes of cells' methods fit devices, as JSON under `rows`, see `outlooks`.

    Args:
        asked: as of `estimates`, and how many `images` a client has, and the `devices` of each cell by its id, the
            server's the last.
        tell: see `answer_each`.
    """
    registry = Registry(asked["files"], in_place=True)
    assets = Assets(registry, asked["base"])

    def trial_of(config: Config, dataset: Dataset, clients: Sequence[Client]) -> Simulation:
        source = assets.source(config["backbone"])
        with torch.device("meta"):
            return Simulation(config, registry, "meta", source, dataset, clients, fitting=True)

    def answer(id: str, config: Config) -> dict[str, Any]:
        *there, server = [Device(**one) for one in asked["devices"][id]]
        found = outlooks(config, assets, there, server, asked["images"], trial_of)
        return {"rows": [one.to_json() for one in found]}

    answer_each(asked["cells"], registry, answer, tell)


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


@dataclass(frozen=True)
class _Cell:
    """A cell as its method may find it."""

    config: Config
    world: FederatedData
    federation: Federation  # the world's, or its clients with sizes that fit their devices

    def sees(self, name: str) -> Any:
        """What a method finds under a name of LOOKED_AT, to be compared with what it would find in another cell."""
        if name == "seed":
            return self.config["seed"]
        if name == "proxy":
            return self.config["data"].get("proxy") and id(self.world)
        if name == "clients":
            return id(self.world)  # which is there as long as what was built for it
        sizes = getattr(self.federation.scenario, name)
        return None if sizes is None else (sizes.shape, sizes.tobytes())


@dataclass
class _Built:
    """A method that was built for one cell, or why it could not be, and what it has looked at by now.

    sizes: what it offers clients that have devices, where it was asked.
    """

    cell: _Cell
    noted: set[str]
    trial: Simulation | None = None
    reason: NotApplicable | None = None
    sizes: list[tuple[Size, Costs]] | None = None

    def fits(self, cell: _Cell) -> bool:
        """Whether it would be the same, had it been built for another cell."""
        return all(self.cell.sees(name) == cell.sees(name) for name in self.noted)

    @property
    def made(self) -> Simulation:
        """Raises NotApplicable."""
        if self.trial is None:
            assert self.reason is not None
            raise self.reason
        return self.trial


class Prices:
    """The totals of cells, see `RoundRecords.totals`; ask for those that one method may serve one after the other.

    Nobody says which methods price alike under another seed or scenario: what a method reads of its set-up tells, then
    and whenever it is asked for a price.
    """

    def __init__(self, assets: Assets) -> None:
        self.assets = assets
        self._worlds: OrderedDict[str, FederatedData] = OrderedDict()
        self._built: OrderedDict[str, list[_Built]] = OrderedDict()

    def totals(self, config: Config) -> dict[str, Any]:
        """Raises UserError, NotApplicable."""
        world = self._world(config)
        cell = _Cell(config, world, world.federation)
        if world.federation.devices is not None:
            sizes = self._of_built(cell, _sizes, fitting=True)
            cell = _Cell(config, world, fitted(config, self.assets.registry, world.federation, sizes))
        return self._of_built(cell, _totals)

    def _of_built(self, cell: _Cell, ask: Callable[[_Built, _Cell], T], fitting: bool = False) -> T:
        """What a method answers that was built for this cell, or for one that it could not tell from this. fitting:
        whether it is built to be asked what sizes it offers. Raises UserError, NotApplicable."""
        known = _kept(self._built, f"{of_one_method(cell.config)} {fitting}", METHODS, list)
        for built in known:
            if built.fits(cell):
                answer = ask(built, cell)
                if built.fits(cell):  # it may have looked at more meanwhile
                    return answer
        del known[: max(0, len(known) - VARIANTS + 1)]
        known.append(built := self._build(cell, fitting))
        return ask(built, cell)

    def _build(self, cell: _Cell, fitting: bool) -> _Built:
        built, registry = _Built(cell, set()), self.assets.registry

        def setup(**given: Any) -> Setup:
            made = _Setup(**{**given, "scenario": _Scenario(**vars(given["scenario"]))})
            for one in (made, made.scenario):
                object.__setattr__(one, "noted", built.noted)
            return made

        source, world = self.assets.source(cell.config["backbone"]), cell.world
        given: dict[str, Any] = {"world": world, "federation": cell.federation, "setup": setup, "fitting": fitting}
        try:
            with shapes_alone():
                built.trial = Simulation(cell.config, registry, "meta", source, world.dataset, **given)
        except NotApplicable as reason:
            built.reason = reason
        return built

    def _world(self, config: Config) -> FederatedData:
        backbone = self.assets.backbone(config["backbone"])
        dataset = self.assets.dataset(config["data"], backbone["image_size"])
        dataset, layers = dataset.outlined, backbone["num_layers"]
        half = (0.5, 0.5, 0.5)  # of images without pixels
        parts = {key: value for key, value in config.items() if key not in OF_METHODS}
        parts["train"] = {key: value for key, value in config["train"].items() if key != "optimizer"}
        key = json.dumps([parts, layers, backbone["image_size"]], sort_keys=True)

        def make() -> FederatedData:
            with shapes_alone():
                return FederatedData(config, self.assets.registry, dataset, layers, (half, half), "meta")

        world = _kept(self._worlds, key, WORLDS, make)
        while len(self._worlds) > 1 and sum(len(one.federation.clients) for one in self._worlds.values()) > REGISTERED:
            self._worlds.popitem(last=False)
        return world


def _totals(built: _Built, cell: _Cell) -> dict[str, Any]:
    """Raises UserError, NotApplicable."""
    check_ranks(built.made.model, cell.federation.scenario)
    return RoundRecords(cell.config, cell.world.dataset, cell.federation).totals(built.made.method, cell.world)


def _sizes(built: _Built, cell: _Cell) -> list[tuple[Size, Costs]]:
    """What the method offers clients that have devices. Raises NotApplicable."""
    if built.sizes is None:
        built.sizes = offered(built.made.method, cell.federation.num_layers, built.made.rounds)
    return built.sizes


def _kept(known: OrderedDict[str, T], key: str, most: int, make: Callable[[], T]) -> T:
    """What is known by a key, made where it is not; the one that was asked for longest ago goes."""
    if key in known:
        known.move_to_end(key)
    else:
        known[key] = make()
        if len(known) > most:
            known.popitem(last=False)
    return known[key]
