"""Simulated time: what each client of a round takes on its device, and how long the server waits; nothing is measured.

All of it is ours. No clock of the machine that computes a cell has a part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.cell.federation import Federation
from fedbench.devices.clock import RoundSeconds, round_seconds
from fedbench.results.columns import SIMULATED
from fedbench.seeding import numpy_generator
from fedbench.types import ClientCost


@dataclass(frozen=True)
class Done:
    """What a client did in a round, and would have done in one without faults: images, those of the last step, and
    images of a model of its own beside; sent, refused: whether its work came, and whether the server took it."""

    images: int
    last: int
    beside: int
    usual: tuple[int, int, int]
    sent: bool = True
    refused: bool = False


class Clock:
    """The simulated time of one cell. Every draw is a function of (seed, round, client), so all methods meet the same.

    A client takes bytes down / down, FLOPs / FLOP/s and bytes up / up of its device, one after the other, and waits in
    between while the server computes for it. A straggler computes `slowdown` times as long, and one that is not done by
    its deadline has computed until then: `deadline` times what its usual steps take. A client that drops out is missed
    at once. jitter: the deviation of the logarithm of two factors with median 1, of its processor and of its network.
    """

    def __init__(self, config: Mapping[str, Any], federation: Federation) -> None:
        self.federation, self.seed, self.precision = federation, config["seed"], config["precision"]
        self.jitter = (config.get("devices") or {}).get("jitter", 0.0)

    def times(self, t: int, client: int, cost: ClientCost, done: Done) -> RoundSeconds:
        """Of a client of round t."""
        devices, server, faults = self.federation.devices, self.federation.server, self.federation.faults
        assert devices is not None and server is not None  # else nobody asks
        device = devices[client]
        took = round_seconds(
            cost, device, server, done.images, done.last, self.precision, done.beside, done.sent, done.refused
        )
        fate = faults.fate(t, client, self.federation.usual_steps(client))
        compute = fate.slowdown * took.compute
        if fate.late:
            images, last, beside = done.usual
            usual = cost.flops(images, last, beside=beside) / device.flops_at(self.precision)
            compute = faults.deadline * usual
        processor, network = self._factors(t, client)
        return RoundSeconds(network * took.down, processor * compute, network * took.up, took.server)

    def columns(self, t: int, client: int, cost: ClientCost, done: Done) -> dict[str, float | None]:
        """SIMULATED of a row of rounds.parquet."""
        times, devices = self.times(t, client, cost, done), self.federation.devices
        watts = devices[client].watts if devices else None
        energy = None if watts is None else watts * times.compute
        return dict(zip(SIMULATED, (*times, energy), strict=True))

    def _factors(self, t: int, client: int) -> tuple[float, float]:
        """So many times longer than usual (its processor, its network)."""
        if not self.jitter:
            return 1.0, 1.0
        processor, network = numpy_generator(self.seed, t, client, "devices/jitter").standard_normal(2)
        return math.exp(self.jitter * processor), math.exp(self.jitter * network)


def waited(times: Sequence[RoundSeconds]) -> float:
    """Seconds until the server waits for nobody any more. Clients work side by side; the server is one machine, and
    what it computes for them one after the other takes its time too."""
    return max(*(one.total for one in times), sum(one.server for one in times)) if times else 0.0


def idle_share(times: Sequence[RoundSeconds]) -> float:
    """Of the clients' time, the part in which they neither sent nor received nor computed."""
    duration = waited(times)
    busy = sum(one.down + one.compute + one.up for one in times)
    return 1 - busy / (len(times) * duration) if duration else 0.0
