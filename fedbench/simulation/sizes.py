"""What a scenario gives each of its clients: how many layers it can hold, which rank, or which width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbench.errors import UserError
from fedbench.seeding import numpy_generator
from fedbench.types import MIXED, Client, Clients
from fedbench.words import counted

# A suite's key, and what one value is called.
KEYS = {"capacity": ("capacities", "depth"), "rank": ("ranks", "rank"), "width": ("widths", "width")}


class Sizes:
    """One size of every client; every draw is a function of (seed, round, client) alone.

    what: `capacity`, `rank` or `width` · given: what the configuration says · number: of registered clients ·
    everybody: the size that `all` means.
    """

    def __init__(self, what: str, given: Mapping[str, Any], number: int, seed: int, everybody: int = 0) -> None:
        self.what, self.given, self.number, self.seed, self.everybody = what, given, number, seed, everybody

    def ranges(self, clients: Clients) -> np.ndarray:
        """(clients, 2) int64, of widths float64, not to be written to: the smallest and the largest size of each.
        Raises UserError where one is given none."""
        if "all" in self.given or "uniform" in self.given:
            return np.broadcast_to(np.array(self._range(clients[0])), (len(clients), 2))
        way = "by_client" if "by_client" in self.given else "by_domain"
        places = np.arange(len(clients)) if way == "by_client" else clients.domains
        values = np.asarray(self.given[way])
        wrong = (places == MIXED) | (places >= len(values))
        if wrong.any():
            self._range(clients[int(wrong.argmax())])  # says what is wrong
        own = values[: len(clients)] if way == "by_client" else values[places]
        return np.broadcast_to(own[:, None], (len(clients), 2))

    def of(self, t: int, client: Client) -> float:
        """The size of a client in round t, a whole number but for widths."""
        low, high = self._range(client)
        if low == high:
            return low
        draw = numpy_generator(self.seed, t, client.id, self.what)
        return float(draw.uniform(low, high)) if self.what == "width" else int(draw.integers(int(low), int(high) + 1))

    def _range(self, client: Client) -> tuple[float, float]:
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
            raise UserError(
                f"{key}: {counted(len(values), 'value')} for {counted(self.number, 'client')}; give one for each"
            )
        value = values[place].item() if isinstance(values, np.ndarray) else values[place]
        return value, value
