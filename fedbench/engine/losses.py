"""What the clients of a step minimise, asked once for all whose batches and exits are alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedbench.engine.evening import read
from fedbench.engine.readout import Answers
from fedbench.types import Objective

Stacked = Callable[[Sequence[Tensor], Tensor, int], Tensor]


class Losses:
    """An objective as a function of many clients' exits (n, B, C) and labels (n, B), to n losses.

    One that says how (`objective.stacked`) is asked so. Of any other torch makes such a function (`torch.func.vmap`),
    if that says of the first clients what it says to each of them; if not, and on a CPU, whose numbers stay as they
    are to the bit, it is asked client by client.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.stacked: Stacked | None = getattr(objective, "stacked", None)

    def of(self, answers: Sequence[Answers], y: dict[int, Tensor], t: int) -> Tensor:
        """(n,) the loss of each client, in the order of y: the labels (B_n,) of each."""
        found: dict[int, Tensor] = {}
        for alike in read(answers, y):
            each = self._each(alike.exits, torch.stack([y[n] for n in alike.clients]), t)
            if alike.clients == list(y):
                return each
            found |= dict(zip(alike.clients, each.unbind(), strict=True))
        return torch.stack([found[n] for n in y])

    def _each(self, exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
        if len(y) == 1:
            return self.one_by_one(exits, y, t)
        if self.stacked is None:
            self.stacked = self._tried(exits, y, t) if y.device.type != "cpu" else self.one_by_one
        return self.stacked(exits, y, t)

    def one_by_one(self, exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
        """The objective asked client after client."""
        rows = zip(*(o.unbind() for o in exits), strict=True)
        each = zip(rows, y.unbind(), strict=True)
        return torch.stack([self.objective(list(own), labels, t) for own, labels in each])

    def at_once(self, exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
        """The objective as torch maps it over clients."""
        each: Tensor = torch.func.vmap(lambda own, labels: self.objective(own, labels, t))(list(exits), y)
        return each

    @torch.no_grad()
    def _tried(self, exits: Sequence[Tensor], y: Tensor, t: int) -> Stacked:
        try:
            found, told = self.at_once(exits, y, t), self.one_by_one(exits, y, t)
            same = found.shape == told.shape and torch.allclose(found, told, rtol=1e-4, atol=1e-6)
        except (
            Exception
        ):  # whatever keeps vmap from it; where the objective itself is at fault, asking it plainly shows
            same = False
        return self.at_once if same else self.one_by_one
