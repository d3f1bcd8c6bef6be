"""Who holds what in a round, and what of it each client trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Plan:
    """Who holds what in this round, and what of it each client trains.

    Only `M` and `exits` are required. Without the others a client trains all that it holds.

    Attributes:
        M: (N, L) bool, the allocation matrix: the layers that each client holds. They are sent to it and run; it skips
            the others.
        exits: For each client the depths (from 1, counted in layers held) after which a classifier reads the features,
            with the classifier's name.
        trained: (N, L) bool, the layers held that are trained; the others run frozen.
        terms: (N, L, R) bool, which of the R rank-one terms b a^T of its layers' low-rank adapters a client holds. The
            others are 0 in its model.
        trained_terms: (N, L, R) bool, which of these terms it trains.
        frozen: `fnmatch` patterns of the names of tensors that nobody trains in this round, in any layer (`*.lora_A`).
        scales: (N,) float64, the factor of a client's low-rank products B A, in place of the adapter's alpha / R.
        kept: `fnmatch` patterns of personal tensors, which a client trains and does not send.
    """

    M: Tensor
    exits: Sequence[Sequence[Exit]]
    trained: Tensor | None = None
    terms: Tensor | None = None
    trained_terms: Tensor | None = None
    frozen: Sequence[str] = ()
    scales: Tensor | None = None
    kept: Sequence[str] = ()

    @property
    def trains(self) -> Tensor:
        """(N, L) bool, the layers whose updates each client sends back."""
        return self.M if self.trained is None else self.trained

    @property
    def ranks(self) -> Tensor | None:
        """(N, L) int64, how many rank-one terms of each layer a client holds; None without `terms`."""
        return None if self.terms is None else self.terms.sum(-1)


@dataclass(frozen=True)
class Exit:
    """A classifier that reads the features after `depth` held layers."""

    depth: int
    classifier: str
