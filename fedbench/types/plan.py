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

    M: (N, L) bool, the allocation matrix: the layers each client holds, which are sent to it and run; the others it
    skips · exits: for each client the depths (1-based, counted in layers held) after which a classifier reads the
    features, with the classifier's name.

    What follows may be left out, and then all that is held is trained, as it is:

    trained: (N, L) bool, the layers held that are trained; the others run frozen · terms: (N, L, R) bool, which of the
    R rank-one terms b a^T of its layers' low-rank adapters a client holds; the others are 0 in its model ·
    trained_terms: (N, L, R) bool, which of those it trains · frozen: patterns, as `fnmatch` reads them, of the names of
    tensors that nobody trains in this round, whatever layer they stand in (`*.lora_A`) · scales: (N,) float64, what a
    client multiplies its low-rank products B A with in place of the adapter's own alpha / R · kept: patterns, as of
    `frozen`, of tensors that every client has of its own: it trains them and does not send them.
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
        """(N, L) bool: whose work on which layers comes back."""
        return self.M if self.trained is None else self.trained

    @property
    def ranks(self) -> Tensor | None:
        """(N, L) int64: how many rank-one terms of each layer a client holds; None where terms are not told apart."""
        return None if self.terms is None else self.terms.sum(-1)


@dataclass(frozen=True)
class Exit:
    """A classifier that reads the features after `depth` held layers."""

    depth: int
    classifier: str
