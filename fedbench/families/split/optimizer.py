"""The optimiser that a server may have of its own, where FedV's Algorithm 1 writes a plain step (line 19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedbench.models.optimizer import make_optimizer

Values = Mapping[str, Tensor]


class OwnOptimizer:
    """Steps w_E in place. What it keeps, moments and numbers of steps, lasts from round to round.

    options: as a suite's, but for the rate · kept: by parameter, as `kept` gave it; empty before the first step.
    """

    def __init__(self, w_E: Values, options: Mapping[str, Any], kept: Mapping[str, Values]) -> None:
        self.w_E = w_E
        self.optimizer = make_optimizer(list(w_E.values()), {**options, "lr": 0.0})
        for name, parts in kept.items():
            # Torch counts steps on the CPU, wherever the weights are.
            place = {part: "cpu" if part == "step" else w_E[name].device for part in parts}
            self.optimizer.state[w_E[name]] = {part: value.to(place[part], copy=True) for part, value in parts.items()}

    def step(self, gradient: Values, lr: float) -> None:
        """One step on this gradient."""
        self.optimizer.param_groups[0]["lr"] = lr
        for name, w in self.w_E.items():
            w.grad = gradient[name]
        self.optimizer.step()
        for w in self.w_E.values():
            w.grad = None

    def kept(self) -> dict[str, dict[str, Tensor]]:
        """What the next round goes on from, in memory of its own."""
        of_all = {name: self.optimizer.state.get(w) or {} for name, w in self.w_E.items()}
        found = {
            name: {part: value.detach().clone() for part, value in parts.items() if isinstance(value, Tensor)}
            for name, parts in of_all.items()
        }
        return {name: parts for name, parts in found.items() if parts}
