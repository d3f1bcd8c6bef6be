"""Simulated time: what each client of a round takes on its device, and how long the server waits; nothing is measured.

All of it is ours. No clock of the machine that computes a cell has a part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbench.devices.fitting import RoundSeconds, round_seconds
from fedbench.method import Method
from fedbench.results.columns import SIMULATED
from fedbench.seeding import numpy_generator
from fedbench.simulation.federation import Federation
from fedbench.types import ClientCost, Cohort


class Clock:
    """The simulated time of one cell. Every draw is a function of (seed, round, client), so all methods meet the same.

    A client takes bytes down / down, FLOPs / FLOP/s and bytes up / up of its device, one after the other, and waits in
    between while the server computes for it. A straggler computes `slowdown` times as long, and one that is not done by
    its deadline has computed until then: `deadline` times what its usual steps take. A client that drops out is missed
    at once. jitter: the deviation of the logarithm of two factors with median 1, of its processor and of its network ·
    wait_for: of how many clients, the fastest, the server takes the work; None for all.
    """

    def __init__(self, config: Mapping[str, Any], federation: Federation) -> None:
        self.federation, self.seed, self.precision = federation, config["seed"], config["precision"]
        given = config.get("devices") or {}
        self.jitter: float = given.get("jitter", 0.0)
        self.wait_for: int | None = given.get("wait_for")

    def cohort(self, t: int, method: Method) -> Cohort:
        """The clients of round t. Where the server waits for the fastest, the work of the others is lost to it: they
        have done it, and it does not arrive. Who is fastest follows from what the method charges beforehand."""
        cohort = self.federation.cohort(t)
        if self.wait_for is None or int(cohort.arrives.sum()) <= self.wait_for:
            return cohort
        arriving = {
            n: self.times(t, client, cost, int(cohort.steps[n])).total
            for n, (client, cost) in enumerate(zip(cohort.ids, method.prices(cohort, t), strict=True))
            if cost is not None and cohort.arrives[n]
        }
        arrives = cohort.arrives.clone()
        arrives[sorted(arriving, key=arriving.__getitem__)[self.wait_for :]] = False  # of equal ones the later client's
        return replace(cohort, arrives=arrives)

    def times(
        self, t: int, client: int, cost: ClientCost, steps: int, sent: bool = True, refused: bool = False
    ) -> RoundSeconds:
        """Of a client of round t that has done so many steps. sent: whether its work came; refused: whether the server
        would not have it."""
        devices, server, faults = self.federation.devices, self.federation.server, self.federation.faults
        assert devices is not None and server is not None  # else nobody asks
        device, work, usual = devices[client], self.federation.work(client, steps), self.federation.work(client)
        beside, last = work.beside(cost.epochs_beside), work.last if sent else 0
        took = round_seconds(cost, device, server, work.images, last, self.precision, beside, sent, refused)
        fate = faults.fate(t, client, self.federation.usual_steps(client))
        compute = fate.slowdown * took.compute
        if fate.late:
            flops = cost.flops(usual.images, usual.last, beside=usual.beside(cost.epochs_beside))
            compute = faults.deadline * flops / device.flops_at(self.precision)
        processor, network = self._factors(t, client)
        return RoundSeconds(network * took.down, processor * compute, network * took.up, took.server)

    def columns(
        self, t: int, client: int, cost: ClientCost, steps: int, sent: bool, refused: bool
    ) -> dict[str, float | None]:
        """SIMULATED of a row of rounds.parquet; nulls where clients have no devices."""
        if self.federation.devices is None:
            return dict.fromkeys(SIMULATED)
        times, watts = self.times(t, client, cost, steps, sent, refused), self.federation.devices[client].watts
        energy = None if watts is None else watts * times.compute
        return dict(zip(SIMULATED, (*times, energy), strict=True))

    def row(self, times: Sequence[RoundSeconds], sent: Sequence[bool]) -> dict[str, float]:
        """What a round took, by the columns of clock.parquet: of its clients, and which of them sent their work.

        Clients work side by side. The server waits for all, or until it has the work of so many as it waits for; it is
        one machine, and what it computes for them one after the other takes its time too.
        """
        awaited = [one for one, came in zip(times, sent, strict=True) if came]
        if self.wait_for is None or len(awaited) < self.wait_for:
            awaited = list(times)
        duration = max(*(one.total for one in awaited), sum(one.server for one in awaited))
        busy = sum(min(one.down + one.compute + one.up, duration) for one in times)
        return {
            "duration": duration,
            "server_seconds": sum(one.server for one in times),
            "idle_share": 1 - busy / (len(times) * duration) if duration else 0.0,
        }

    def _factors(self, t: int, client: int) -> tuple[float, float]:
        """So many times longer than usual (its processor, its network)."""
        if not self.jitter:
            return 1.0, 1.0
        processor, network = numpy_generator(self.seed, t, client, "devices/jitter").standard_normal(2)
        return math.exp(self.jitter * processor), math.exp(self.jitter * network)
