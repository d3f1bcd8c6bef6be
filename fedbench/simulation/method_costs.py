"""Costs of cells from shapes: a method is built once for all cells that differ in nothing that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedbench import machine
from fedbench.devices.feasibility import outlooks
from fedbench.method import Setup
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.simulation.cost_estimate import Send, answer_each, of_one_method
from fedbench.simulation.federated_data import FederatedData
from fedbench.simulation.round_records import RoundRecords
from fedbench.simulation.simulation import Simulation, check_ranks
from fedbench.types import SIZES, Client, Dataset, Device, Scenario

Config = Mapping[str, Any]

# What cells that one method serves may differ in, by its name in the set-up. All else of a configuration is equal.
LOOKED_AT = ("seed", "clients", *SIZES, "proxy")
OF_METHODS = ("method", "adapter", "backbone", "profile", "precision", "engine")  # federated data do not depend on them
DATA, BUILT = 64, 16  # federated data and simulations of one method that are kept
REGISTERED = 3_000_000  # clients of all federated data that are kept, unless one alone has more


def estimates(asked: Mapping[str, Any], send: Send) -> None:
    """In a child process: report what cells cost, see `cost_estimates`.

    Args:
        asked: the plugin `files` and the `base` of `CachedFacts`, and the `cells`.
        send: see `answer_each`.
    """
    machine.leave_alone()
    registry = Registry(asked["files"], in_place=True)
    costs = MethodCosts(CachedFacts(registry, asked["base"]))
    answer_each(asked["cells"], registry, lambda id, config: costs.totals(config), send)


def feasible(asked: Mapping[str, Any], send: Send) -> None:
    """In a child process: report which sizes of cells' methods fit devices, as JSON under `rows`; see `outlooks`.

    Args:
        asked: as of `estimates`, and how many `images` a client has, and the `devices` of each cell by its id, the
            server's the last.
        send: see `answer_each`.
    """
    registry = Registry(asked["files"], in_place=True)
    facts = CachedFacts(registry, asked["base"])

    def simulation_of(config: Config, dataset: Dataset, clients: Sequence[Client]) -> Simulation:
        source = facts.source(config["backbone"])
        with torch.device("meta"):
            return Simulation(config, registry, "meta", source, dataset, clients, fitting=True)

    def answer(id: str, config: Config) -> dict[str, Any]:
        *there, server = [Device(**one) for one in asked["devices"][id]]
        found = outlooks(config, facts, there, server, asked["images"], simulation_of)
        return {"rows": [one.to_json() for one in found]}

    answer_each(asked["cells"], registry, answer, send)


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
    """The simulation of a cell with its method, and which of LOOKED_AT that has read by now."""

    config: Config
    federated: FederatedData
    noted: set[str]
    simulation: Simulation

    def serves(self, config: Config, federated: FederatedData) -> bool:
        """Whether it would be the same, had it been built for another cell."""
        return all(_read(name, self.config, self.federated) == _read(name, config, federated) for name in self.noted)

    def totals(self, config: Config, federated: FederatedData) -> dict[str, Any]:
        """The totals of a cell that it serves. Raises UserError."""
        check_ranks(self.simulation.model, federated.federation.scenario)
        records = RoundRecords(config, federated.dataset, federated.federation)
        return records.totals(self.simulation.method, sum(federated.sizes))


def _read(name: str, config: Config, federated: FederatedData) -> Any:
    """What a method reads under a name of LOOKED_AT, to be compared with what it would read in another cell."""
    if name == "seed":
        return config["seed"]
    if name == "clients":
        return id(federated)
    if name == "proxy":
        return config["data"].get("proxy") and id(federated)
    sizes = getattr(federated.federation.scenario, name)
    return None if sizes is None else (sizes.shape, sizes.tobytes())


class MethodCosts:
    """The totals of cells, see `RoundRecords.totals`. Cells that one method may serve are asked for in a row.

    Which cells share a method follows from what the method reads of its set-up, when it is built and when it is asked
    for a cost. The 40 cells of extreme_hetero take two thirds of the time of one method for each cell. Cells with
    devices have a method each, since the sizes that fit depend on it.
    """

    def __init__(self, facts: CachedFacts) -> None:
        self.facts = facts
        self._data: dict[str, FederatedData] = {}
        self._common, self._built = "", list[_Built]()

    def totals(self, config: Config) -> dict[str, Any]:
        """Raises UserError, NotApplicable."""
        federated = self._federated_data(config)
        if config.get("devices"):
            simulation = self._simulation(config, federated, Setup)
            return simulation.records.totals(simulation.method, sum(federated.sizes))
        if self._common != (common := of_one_method(config)):
            self._common, self._built = common, []
        for built in self._built:
            if built.serves(config, federated):
                found = built.totals(config, federated)
                if built.serves(config, federated):  # it may have read more meanwhile
                    return found
        self._built = [*self._built[1 - BUILT :], self._build(config, federated)]
        return self._built[-1].totals(config, federated)

    def _build(self, config: Config, federated: FederatedData) -> _Built:
        noted = set[str]()

        def setup(**given: Any) -> Setup:
            made = _Setup(**{**given, "scenario": _Scenario(**vars(given["scenario"]))})
            for one in (made, made.scenario):
                object.__setattr__(one, "noted", noted)
            return made

        return _Built(config, federated, noted, self._simulation(config, federated, setup))

    def _simulation(self, config: Config, federated: FederatedData, setup: Any) -> Simulation:
        source = self.facts.source(config["backbone"])
        given: dict[str, Any] = {"federated": federated, "setup": setup}
        with torch.device("meta"):
            return Simulation(config, self.facts.registry, "meta", source, federated.dataset, **given)

    def _federated_data(self, config: Config) -> FederatedData:
        """The clients of a cell and how many images each has, without pixels; kept for other methods."""
        backbone = self.facts.backbone(config["backbone"])
        layers, size = backbone["num_layers"], backbone["image_size"]
        parts = {key: value for key, value in config.items() if key not in OF_METHODS}
        parts["train"] = {key: value for key, value in config["train"].items() if key != "optimizer"}
        key = json.dumps([parts, layers, size], sort_keys=True)
        if key not in self._data:
            dataset, source = self.facts.outline(config), self.facts.source(config["backbone"])
            with torch.device("meta"):
                made = FederatedData(config, self.facts.registry, dataset, layers, source, "meta")
            registered = sum(len(one.federation.clients) for one in (made, *self._data.values()))
            if len(self._data) == DATA or registered > REGISTERED:
                self._data.clear()
            self._data[key] = made
        return self._data[key]
