"""How long a round takes on a device: down, compute and up, by bytes and FLOPs alone."""

from __future__ import annotations

from typing import NamedTuple

from fedbench.types import ClientCost, Device


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
    beside: int = 0,
    arrives: bool = True,
    refused: bool = False,
) -> RoundSeconds:
    """A round of a client with this device.

    down = bytes down / device.down · compute = FLOPs / device's FLOP/s in that precision · up = bytes up / device.up ·
    server = the server's FLOPs for this client / the server's FLOP/s, where it computes along. Nothing overlaps:
    latency, protocols and the server's own bandwidth are left out. images, last, beside, arrives: as in
    `ClientCost.flops` and `ClientCost.exchange`.
    """
    down, up = round_bytes(cost, images, last, arrives, refused)
    flops = cost.flops(images, last, arrives, beside)
    along = cost.server.flops(images, last if arrives else 0) if cost.server else 0
    return RoundSeconds(
        down / device.down,
        flops / device.flops_at(precision),
        up / device.up,
        along / server.flops_at(precision),
    )
