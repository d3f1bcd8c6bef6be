"""How clients train in a round, what comes back, and what is told of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from fedbench.types.clients import Cohort
from fedbench.types.cost import ClientCost
from fedbench.types.plan import Plan

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Pull:
    """What every client adds to its loss: strength / 2 ||w - w_start||^2 - <linear, w>, w being all that it trains, and
    tail_strength sum ||B[:, c_n:]||_F ||A[c_n:, :]||_F over the low-rank adapters whose two factors it trains.

    linear: `{"r": [{name: (n_j, ...)}] * L, "shared": {name: (n, ...)}}`, rows as in `Uploads`; None for 0 · tails:
    (N,) int64, the c_n, from which rank-one term on a client's adapters are pulled to 0; None for nobody's. Terms that
    a client does not hold are 0.
    """

    strength: float
    linear: Mapping[str, Any] | None = None
    tails: Tensor | None = None
    tail_strength: float = 0.0

    @property
    def everywhere(self) -> bool:
        """Whether it pulls at all that a client trains, and not at tails alone."""
        return self.strength != 0 or self.linear is not None or self.tails is None


class Objective(Protocol):
    """objective(logits of every exit [m x (B, C)], y (B,), t) -> scalar loss."""

    def __call__(self, exits: Sequence[Tensor], y: Tensor, t: int, /) -> Tensor: ...


@dataclass(frozen=True)
class Job:
    """How a client trains: what an engine needs besides data and allocation.

    objective: what it minimises · clip: the largest gradient norm of a client, or None · pull: a term of the loss
    that is not part of the loss reported, or None.
    """

    t: int
    seed: int
    optimizer: Mapping[str, Any]
    clip: float | None
    objective: Objective
    pull: Pull | None = None


@dataclass
class Uploads:
    """What came back.

    `r[j][name]`: (n_j, ...) layer j's adapters from the n_j clients that train them, in the order of n · shared[name]:
    (n, ...) from the clients that train it, in order · arrived (N,) bool, whose rows came back: the others' must be
    left alone · loss (N,) mean training loss, NaN after no step · steps (N,) steps taken · seconds (N,) · rejected: why
    the server refused the upload of the client at a position; such a client has not arrived · coordinates: of tensors
    that clients train in part, by place (`r/<layer>/<name>`, `shared/<name>`), which coordinates each row's client
    trained, bool, in the rows' shape or broadcast to it; elsewhere a row holds what its client started from · spoilt:
    the positions whose uploads a fault has changed on their way · sent: where there are such, `r` and `shared` as they
    were before.
    """

    r: list[dict[str, Tensor]]
    shared: dict[str, Tensor]
    arrived: Tensor
    loss: Tensor
    steps: Tensor
    seconds: Tensor
    rejected: Mapping[int, str] = field(default_factory=dict)
    coordinates: Mapping[str, Tensor] = field(default_factory=dict)
    spoilt: Collection[int] = ()
    sent: Mapping[str, Any] | None = None

    @property
    def own(self) -> Uploads:
        """These uploads as their clients know them: what a client concludes from its work, it does before a fault."""
        return self if self.sent is None else replace(self, **self.sent, sent=None)

    @classmethod
    def of(
        cls,
        cohort: Cohort,
        r: list[dict[str, Tensor]],
        shared: dict[str, Tensor],
        loss: Tensor,
        seconds: Tensor,
        coordinates: Mapping[str, Tensor] | None = None,
    ) -> Uploads:
        """What an engine returns: whose work arrives, and after how many steps, is the cohort's to say."""
        loss = loss.masked_fill(cohort.steps == 0, float("nan"))
        return cls(
            r, shared, cohort.arrives.clone(), loss, cohort.steps.clone(), seconds, coordinates=coordinates or {}
        )


@dataclass(frozen=True)
class Report:
    """What a round tells the record: the plan followed, who took part, what came back, and what each client paid."""

    plan: Plan
    cohort: Cohort
    uploads: Uploads
    cost: Sequence[ClientCost]
