"""How long a round takes on a device, and the largest size of a method that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fedbench.types import ClientCost, Device, Size

if TYPE_CHECKING:
    from fedbench.method import Method


class RoundSeconds(NamedTuple):
    """Seconds of one client in one round. server: that it waits while the server computes for it."""

    down: float
    compute: float
    up: float
    server: float = 0.0

    @property
    def total(self) -> float:
        """From the start of the round until its work is there."""
        return self.down + self.compute + self.up + self.server


def round_bytes(cost: ClientCost, images: int, last: int, arrives: bool = True, refused: bool = False) -> list[int]:
    """[down, up] of a round of so many images, `last` of them in its last step, see `ClientCost.exchange`."""
    lines = cost.exchange(images, last, arrives, refused)
    return [sum(down for _, down, _ in lines), sum(up for *_, up in lines)]


def round_seconds(
    cost: ClientCost,
    device: Device,
    server: Device,
    images: int,
    last: int,
    precision: str,
    personal_images: int = 0,
    arrives: bool = True,
    refused: bool = False,
    steps: int = 1,
) -> RoundSeconds:
    """A round of a client with this device.

    It is down = bytes down / device.down, compute = FLOPs / the device's FLOP/s in that precision, up = bytes up /
    device.up, and server = the server's FLOPs for this client / the server's FLOP/s, where it computes along. Each
    message takes device.message more. Nothing overlaps: protocols and the server's own bandwidth are left out.
    `images`, `last`, `personal_images` and `arrives` are as in `ClientCost.flops` and `ClientCost.exchange`, `steps` as
    in `ClientCost.messages`.
    """
    down, up = round_bytes(cost, images, last, arrives, refused)
    flops = cost.flops(images, last, arrives, personal_images)
    along = cost.server.flops(images, last if arrives else 0) if cost.server else 0
    to, back = (device.message * messages for messages in cost.messages(steps, arrives))
    return RoundSeconds(
        down / device.down + to,
        flops / device.flops_at(precision),
        up / device.up + back,
        along / server.flops_at(precision),
    )


Costs = Sequence[ClientCost]
NOTHING = ClientCost(flops_per_image=0, bytes_down=0, bytes_up=0, memory_bytes=0)


@dataclass(frozen=True)
class Work:
    """A client's usual round.

    Attributes:
        images: How many it trains on.
        last: How many of them are in its last step.
        personal_images: Of so many epochs, the images of a model of its own; see `ClientCost.personal_epochs`.
        steps: How many steps it takes.
    """

    images: int
    last: int
    personal_images: Callable[[int], int] = field(default=lambda epochs: 0, compare=False)
    steps: int = 1


@dataclass(frozen=True)
class Fit:
    """What a size must fit into, in every round.

    Attributes:
        memory: whether what training needs must fit into the device's memory.
        micro_batches: whether a batch is computed in as few parts as fit there.
        seconds: of a round, at most.
        bytes: down and up in a round, at most.
    """

    server: Device
    precision: str
    memory: bool = False
    seconds: float | None = None
    bytes: float | None = None
    micro_batches: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any], server: Device) -> Fit:
        """What the configuration of a cell says."""
        auto = config["train"].get("micro_batch") == "auto"
        return cls(server, config["precision"], **config["fit"], micro_batches=auto)

    def on(self, cost: ClientCost, device: Device) -> ClientCost:
        """What a round of that cost is on a device."""
        return cost.within(device.memory) if self.micro_batches else cost

    def holds(self, cost: ClientCost, device: Device, work: Work) -> bool:
        """Whether a round of that cost fits."""
        if self.memory and self.on(cost, device).needed_bytes > device.memory:
            return False
        if self.bytes is not None and sum(round_bytes(cost, work.images, work.last)) > self.bytes:
            return False
        if self.seconds is None:
            return True
        personal_images = work.personal_images(cost.personal_epochs)
        given = (work.images, work.last, self.precision, personal_images)
        took = round_seconds(cost, device, self.server, *given, steps=work.steps)
        return took.total <= self.seconds


def offered(method: Method, num_layers: int, rounds: int) -> list[tuple[Size, Costs]]:
    """The sizes of a method, the smallest first, with their different costs over all rounds; those at which a client
    takes no part in some round are none. Where nobody ever does, at any size, each costs nothing."""
    sizes = method.sizes or (Size(num_layers),)
    costs = {size: {method.price(size.capacity, t, size.rank, size.width) for t in range(rounds)} for size in sizes}
    if set().union(*costs.values()) == {None}:
        return [(size, [NOTHING]) for size in sizes]
    return [(size, [cost for cost in own if cost]) for size, own in costs.items() if None not in own]


def fitted(
    sizes: Sequence[tuple[Size, Costs]], fit: Fit | None, devices: Sequence[Device], works: Sequence[Work]
) -> list[Size | None]:
    """The size that each client takes, the last of those that fit in every round; None: none does. fit: None where
    nothing must fit, and everybody takes the last."""
    known: dict[tuple[Device, Work], Size | None] = {}

    def of(device: Device, work: Work) -> Size | None:
        fits = (
            size
            for size, costs in reversed(sizes)
            if fit is None or all(fit.holds(cost, device, work) for cost in costs)
        )
        return next(fits, None)

    for key in zip(devices, works, strict=True):
        if key not in known:
            known[key] = of(*key)
    return [known[key] for key in zip(devices, works, strict=True)]
