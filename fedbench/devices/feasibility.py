"""What a method would be on a device: the size that fits, what it costs, and how long a round takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedbench.devices.fitting import Costs, Fit, RoundSeconds, Work, offered, round_bytes, round_seconds
from fedbench.devices.table import numbers_of
from fedbench.errors import DataMissing
from fedbench.registry.facts import CachedFacts
from fedbench.types import Client, ClientCost, Dataset, Device, Images, Size, Splits, Texts

Config = Mapping[str, Any]
CLASSES = 100  # where the data set is not there to be asked


@dataclass(frozen=True)
class Outlook:
    """One device: the size it takes, None where none fits, and of the round that takes longest what it costs.

    Attributes:
        needed: bytes of memory.
        batch: how many images pass at once, 0 where that is not known.
        seconds, moved: of that round, how long it takes, and bytes down and up.
        images: how many it trains on in a round, one of two epochs twice.
        least: the fewest bytes of memory with which any size could be trained.
        only: whether the method has one size alone.
        ceiling: whether it holds that, whatever fits.
    """

    device: Device
    size: Size | None
    needed: int | None
    batch: int | None
    seconds: RoundSeconds | None
    moved: tuple[int, int] | None
    images: int
    least: int
    only: bool = False
    ceiling: bool = False

    @property
    def label(self) -> str:
        """The size in the method's terms; nothing where none fits."""
        return "" if self.size is None else "one size" if self.only else str(self.size)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Outlook:
        return cls(
            **{
                **found,
                "device": Device(**found["device"]),
                "size": found["size"] and Size(**found["size"]),
                "seconds": found["seconds"] and RoundSeconds(*found["seconds"]),
                "moved": found["moved"] and tuple(found["moved"]),
            }
        )


def outlooks(
    config: Config,
    facts: CachedFacts,
    devices: Sequence[Device],
    server: Device,
    images: int,
    simulation_of: Callable[[Config, Dataset, Sequence[Client]], Any],
) -> list[Outlook]:
    """Of the method of a configuration on each device, with so many training images there. No data are read; what must
    fit is what the configuration says, or the memory. simulation_of: builds a cell from shapes. Raises UserError,
    NotApplicable."""
    config = _with_devices(config, devices, server)
    shape = facts.backbone(config["backbone"])
    size = config["data"].get("max_length" if shape["texts"] else "image_size") or shape["image_size"]
    dataset = _stand_in(config, facts, images, size)
    clients = [Client(n, 0, np.arange(images)) for n in range(len(devices))]
    simulation = simulation_of(config, dataset, clients)
    sizes = offered(simulation.method, simulation.federation.num_layers, simulation.rounds)
    role = facts.registry.catalogue.find("method", config["method"]["name"]).role
    only, ceiling = not simulation.method.sizes, role == "ceiling"
    chosen = simulation.federation.fits(sizes, None if ceiling else config)
    fit = Fit.of(config, server)
    parts = 1 if fit.micro_batches else config["train"]["batch_size"]
    least = min((max(cost.at(parts).needed_bytes for cost in costs) for _, costs in sizes), default=0)
    found = []
    for n, (device, size) in enumerate(zip(devices, chosen, strict=True)):
        work = simulation.federation.work(n)
        cost, seconds, moved = _slowest(dict(sizes)[size], device, fit, work) if size else (None, None, None)
        held = None if cost is None else fit.on(cost, device)
        needed, batch = (None, None) if held is None else (held.needed_bytes, held.batch)
        found.append(Outlook(device, size, needed, batch, seconds, moved, work.images, least, only, ceiling))
    return found


def _slowest(costs: Costs, device: Device, fit: Fit, work: Work) -> tuple[ClientCost, RoundSeconds, tuple[int, int]]:
    """Of the rounds of a size, the one that takes longest: what it costs, how long it takes, bytes down and up."""

    def seconds(cost: ClientCost) -> RoundSeconds:
        personal_images = work.personal_images(cost.personal_epochs)
        given = (work.images, work.last, fit.precision, personal_images)
        return round_seconds(cost, device, fit.server, *given, steps=work.steps)

    cost = max(costs, key=lambda cost: seconds(cost).total)
    down, up = round_bytes(cost, work.images, work.last)
    return cost, seconds(cost), (down, up)


def _with_devices(config: Config, devices: Sequence[Device], server: Device) -> dict[str, Any]:
    """The configuration with one client of each device, of which nothing goes wrong."""
    known = {device.name: numbers_of(device) for device in (*devices, server)}
    given = {"by_client": [device.name for device in devices], "server": server.name, "known": known}
    left = {key: value for key, value in config.items() if key not in ("ranks", "widths", "faults")}
    fit, train = config.get("fit", {"memory": True}), config["train"]
    if not config.get("devices"):  # whose suites have other sizes than those that fit
        train = {"micro_batch": "auto", **train}
    everybody = {"capacities": {"all": True}, "participation": {"all": True}}
    return {**left, "train": train, "devices": given, "fit": fit, **everybody}


def _stand_in(config: Config, facts: CachedFacts, images: int, size: int) -> Dataset:
    """So many images without pixels; of as many classes as the data set has, where it is there."""
    try:
        classes = facts.dataset(config["data"], size).classes
    except DataMissing:
        classes = tuple(map(str, range(CLASSES)))
    texts = facts.backbone(config["backbone"])["texts"]
    made = (Texts if texts else Images).blank(np.zeros(images, np.int64), np.zeros(images, np.int64), size)
    return Dataset(("any",), classes, "", lambda: Splits(made, made), texts=texts)
