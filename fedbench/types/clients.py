"""Who could take part, and who does in a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


SIZES = ("capacities", "ranks", "widths")  # what a scenario may give its clients, as suites call it
GLOBAL = -1  # the number that stands for the global model where results name a client


@dataclass(frozen=True, slots=True)
class Client:
    """One registered client: its domain (index, or MIXED) and the positions (n_i,) of its images in the training
    split."""

    id: int
    domain: int
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class Scenario:
    """Who could take part: every registered client, and the smallest and largest L_n that may occur.

    capacities: (clients, 2) int64 · ranks: (clients, 2) int64, the smallest and largest r_n, where the scenario gives
    its clients ranks · widths: (clients, 2) float64, the smallest and largest width, where it gives widths · fitting:
    whether clients have devices and sizes are yet to be found: the method is asked for its sizes and their prices, may
    be given any of them, and is built anew with those that fit.
    """

    clients: Sequence[Client]
    capacities: np.ndarray
    num_layers: int
    rounds: int
    ranks: np.ndarray | None = None
    widths: np.ndarray | None = None
    fitting: bool = False


@dataclass(frozen=True)
class Cohort:
    """The N clients of one round.

    ids (N,) · capacities (N,) the L_n · num_examples (N,) the |D_n| · steps (N,) optimiser steps it will take ·
    batches(n) yields client n's (x, y) batches of this round, the same for every engine · arrives (N,) bool,
    whether its work will come back; by default everybody's does · ranks (N,) the r_n, where the scenario gives ranks ·
    widths (N,) float64, which share of the hidden units of every layer a client can hold, where it gives widths.
    """

    ids: Sequence[int]
    capacities: Tensor
    num_examples: Tensor
    steps: Tensor
    batches: Callable[[int], Iterator[tuple[Tensor, Tensor]]]
    arrives: Tensor = cast("Tensor", None)  # ones, as soon as it is made: their number is that of ids
    ranks: Tensor | None = None
    widths: Tensor | None = None

    def __post_init__(self) -> None:
        if self.arrives is None:
            import torch

            object.__setattr__(self, "arrives", torch.ones(len(self.ids), dtype=torch.bool, device="cpu"))

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, chosen: Sequence[int]) -> Cohort:
        """The same round with the clients at positions `chosen` alone."""
        rows = list(chosen)
        return Cohort(
            ids=[self.ids[n] for n in rows],
            capacities=self.capacities[rows],
            num_examples=self.num_examples[rows],
            steps=self.steps[rows],
            batches=self.batches.only(rows) if hasattr(self.batches, "only") else lambda n: self.batches(rows[n]),
            arrives=self.arrives[rows],
            ranks=None if self.ranks is None else self.ranks[rows],
            widths=None if self.widths is None else self.widths[rows],
        )
