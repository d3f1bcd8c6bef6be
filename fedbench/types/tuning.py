"""What a suite's tuning tries: its space, the candidates drawn from it, and how they are compared."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tuning:
    """The space, what was drawn from it, and how candidates are compared. The index of results keeps it as it is here.

    Attributes:
        space: ranges by dotted key.
        candidates: values by dotted key, in the order in which they were drawn; behind them those that lie beyond the
            edge of what was drawn, which are tried where a winner lies there.
        seeds: of their cells.
        metric: what is compared, on validation examples.
        halving: after which shares of the rounds the better half goes on.
        confirm: further seeds for the best two; None where the best on `seeds` wins.
        beyond: of each of the last candidates, beyond which of the drawn ones it lies.
    """

    space: dict
    candidates: list = field(repr=False)
    seeds: list
    metric: str
    halving: list
    confirm: list | None = None
    beyond: list | None = None

    @property
    def trials(self) -> int:
        """How many candidates were drawn."""
        return len(self.candidates) - len(self.beyond or ())

    @property
    def all_seeds(self) -> list[int]:
        """Those of all candidates, then those that confirm."""
        return [*self.seeds, *(self.confirm or ())]

    def extensions(self, method: str) -> dict[int, list[int]]:
        """By candidate at an edge that concerns a method, the candidates that lie beyond it."""
        found: dict[int, list[int]] = {}
        for beyond, k in enumerate(self.beyond or (), self.trials):
            if self.at_edge(k, method):
                found.setdefault(k, []).append(beyond)
        return found

    def at_edge(self, k: int, method: str, among: Collection[int] | None = None) -> list[str]:
        """The keys at which a candidate has the lowest or the highest value: the best of that method may lie beyond.

        Values that are no numbers have no edge.

        Args:
            k: The candidate.
            method: Whose keys these are.
            among: The candidates that were tried; by default all that were drawn.
        """
        found = []
        for key, value in self.candidates[k].items():
            values = [self.candidates[other][key] for other in (range(self.trials) if among is None else among)]
            if self.concerns(key, method) and all(map(_is_number, values)) and min(values) < max(values):
                found += [key] if value in (min(values), max(values)) else []
        return found

    def concerns(self, key: str, method: str) -> bool:
        """Whether a key of the space says anything of a method.

        `methods.NAME.option` does so of NAME alone, and `train.optimizer.lr` not of a method that has
        `methods.NAME.optimizer.lr` in its place.
        """
        own = f"methods.{method}."
        if key.startswith("methods."):
            return key.startswith(own)
        return not {own + key, own + key.removeprefix("train.")} & self.space.keys()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
