"""What goes wrong in a round: clients that are lost, and clients that are slow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedbench.seeding import numpy_generator


class Faults:
    """The faults of one cell. Every draw is a function of (seed, round, client), so all methods meet the same ones.

    settings: the `faults` of a suite, resolved; nothing goes wrong where they are empty.
    """

    def __init__(self, settings: Mapping[str, Any], seed: int) -> None:
        self.dropout, self.stragglers, self.seed = settings.get("dropout", 0.0), settings.get("stragglers"), seed

    def of(self, t: int, client: int, steps: int) -> tuple[int, bool]:
        """(steps done, whether the work arrives) of a client of round t that would usually take `steps` of them.

        A client that is both too slow and lost has done the fewer steps of the two, and is lost.
        """
        done, arrives = self._in_time(t, client, steps)
        draw = numpy_generator(self.seed, t, client, "faults/dropout") if self.dropout else None
        if draw is not None and draw.random() < self.dropout:
            return min(done, int(draw.integers(steps))), False
        return done, arrives

    def _in_time(self, t: int, client: int, steps: int) -> tuple[int, bool]:
        """The same for slow clients alone: whole steps done by the deadline."""
        how = self.stragglers
        if how is None:
            return steps, True
        draw = numpy_generator(self.seed, t, client, "faults/stragglers")
        if draw.random() >= how["probability"]:
            return steps, True
        slowdown = how["slowdown"]
        if isinstance(slowdown, list):
            slowdown = draw.uniform(*slowdown)
        if slowdown <= how["deadline"]:
            return steps, True
        done = math.floor(steps * how["deadline"] / slowdown + 1e-9)  # 3 x 1.2 / 3.6 is one step, also in binary
        return done, how["late"] == "partial" and done > 0
