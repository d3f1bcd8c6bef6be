"""What clients can run of a trained model: it at each of its sizes, and which of these every client takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np

from fedbench.families.width.narrow import rate_of
from fedbench.method import Method, Predict, State
from fedbench.simulation.evaluation import Score
from fedbench.simulation.federation import Federation
from fedbench.types import GLOBAL, MIXED, Client, Scenario, Size


@dataclass(frozen=True)
class Runnable:
    """A size that the model can be run at. memory: bytes that a device needs to answer one image, None where that
    is unknown · alone: whether it can answer without the server."""

    size: Size
    memory: int | None
    alone: bool = True


class Deployment:
    """The sizes of a method, and the devices of a federation.

    t: the round, counted from 0, after which the model is deployed; clients have the sizes of that round.
    """

    def __init__(self, method: Method, federation: Federation, t: int) -> None:
        self.method, self.federation, self.t = method, federation, t

    @cached_property
    def sizes(self) -> list[Runnable]:
        """Those that there is a model for, the smallest first; the one model where the method has no other."""
        offered, running = offered_by(self.method, self.federation.scenario), self.method.running
        if running is None:
            return [Runnable(size, None) for size in offered]
        found = [Runnable(size, memory) for size in offered if (memory := running(size)) is not None]
        return found or [Runnable(offered[-1], None, alone=False)]

    def predictor(self, state: State, one: Runnable) -> Callable[[int | None], Predict]:
        """Of what answers at that size, see `Method.predictor`."""
        if self.method.at is None:
            return functools.partial(self.method.predictor, state)
        return functools.partial(self.method.at, state, one.size)

    def taken_by(self, client: int) -> Runnable | None:
        """The largest size that a client can run, None where it can run none."""
        return max((one for one in self.sizes if self._fits(one, client)), key=lambda one: one.size.order, default=None)

    def _fits(self, one: Runnable, client: int) -> bool:
        """Where clients have devices, by their memory, or where it is unknown what the model takes, by what they train;
        else by the size that the scenario gives them."""
        federation = self.federation
        if not one.alone:
            return False
        if federation.devices is not None:
            if one.memory is not None:
                return one.memory <= federation.devices[client].memory
            trained = federation.fitted[client] if federation.fitted is not None else None
            return trained is not None and self._within(one.size, trained)
        who, sizes = federation.clients[client], (federation.capacities, federation.ranks, federation.widths)
        L_n, r_n, width = (None if given is None else given.of(self.t, who) for given in sizes)
        return self._within(one.size, Size(int(L_n or 0), None if r_n is None else int(r_n), width))

    def _within(self, size: Size, given: Size) -> bool:
        """Ranks and widths go by themselves where clients are given such, as in training; by capacity else."""
        if size.width is not None:
            return rate_of([size.width], given.capacity, self.federation.num_layers, given.width) is not None
        if size.rank is not None and given.rank is not None:
            return size.rank <= given.rank
        return size.capacity <= given.capacity


def offered_by(method: Method, scenario: Scenario) -> list[Size]:
    """The sizes at which a method's model may be run, the smallest first, whether or not there is a model for each.

    Those that it offers, and the ranks that the scenario gives; where it gives none, methods of unequal ranks hold the
    first layers with all terms.
    """
    L = scenario.num_layers
    sizes = set(method.sizes or [Size(L)])
    if any(size.rank is not None for size in sizes):
        given = {Size(L, rank) for low, high in scenario.different("ranks") for rank in range(low, high + 1)}
        sizes = sizes | given if given else {Size(depth) for depth in range(1, L + 1)}
    found = sorted(sizes, key=attrgetter("order"))
    return found if method.at is not None else found[-1:]


class Scored:
    """What a model scores, by client where each is tested, else by domain."""

    def __init__(self, scores: Iterable[Score], domains: Sequence[str]) -> None:
        self.domains = domains
        self.by: dict[int | str, dict[str, float]] = {}
        for score in scores:
            split = score.split
            place = split.domain if split.client == GLOBAL else split.client
            self.by.setdefault(place, {})[score.metric] = score.value

    def of(self, client: Client) -> dict[str, float]:
        """By metric, what it scores for a client: on its own test images, or on those of its domain, or in the mean
        over domains where it has images of several. Empty where it has no test images."""
        if client.id in self.by:
            return self.by[client.id]
        if client.domain != MIXED:
            return self.by.get(self.domains[client.domain], {})
        found = [scores for place, scores in self.by.items() if isinstance(place, str)]
        return {metric: float(np.mean([one[metric] for one in found])) for metric in (found[0] if found else ())}
