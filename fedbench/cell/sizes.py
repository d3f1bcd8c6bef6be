"""What a scenario gives each of its clients: how many layers it can hold, or which rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedbench.errors import UserError
from fedbench.seeding import numpy_generator
from fedbench.types import MIXED, Client

KEYS = {"capacity": ("capacities", "depth"), "rank": ("ranks", "rank")}  # a suite's key, and what one value is called


class Sizes:
    """One size of every client; every draw is a function of (seed, round, client) alone.

    what: `capacity` or `rank` · given: what the configuration says · number: of registered clients · everybody: the
    size that `all` means.
    """

    def __init__(self, what: str, given: Mapping[str, Any], number: int, seed: int, everybody: int = 0) -> None:
        self.what, self.given, self.number, self.seed, self.everybody = what, given, number, seed, everybody

    def ranges(self, clients: Iterable[Client]) -> np.ndarray:
        """(clients, 2) int64: the smallest and the largest size of each. Raises UserError where it is given none."""
        return np.array([self._range(client) for client in clients])

    def of(self, t: int, client: Client) -> int:
        """The size of a client in round t."""
        low, high = self._range(client)
        return low if low == high else int(numpy_generator(self.seed, t, client.id, self.what).integers(low, high + 1))

    def _range(self, client: Client) -> tuple[int, int]:
        if "all" in self.given:
            return self.everybody, self.everybody
        if "uniform" in self.given:
            low, high = self.given["uniform"]
            return low, high
        key, one = KEYS[self.what]
        place, way = (client.id, "by_client") if "by_client" in self.given else (client.domain, "by_domain")
        if place == MIXED:
            raise UserError(
                f"{key} by_domain: client {client.id} has images of several domains; give each client a {one}, "
                "{by_client: [...]}, or draw them, {uniform: [lowest, highest]}"
            )
        values = self.given[way]
        if place >= len(values):
            raise UserError(f"{key}: {len(values)} values for {self.number} clients; give one for each")
        return values[place], values[place]
