"""A round: who holds and trains what, what clients are to do, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from fedbench.types.client_cost import ClientCost
from fedbench.types.clients import Cohort

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
        fixed: `fnmatch` patterns of the tensors of `frozen` that a client drew itself before the first round, and is
            never sent.
        fresh: `fnmatch` patterns of tensors that a client draws itself in this round, and is not sent.
    """

    M: Tensor
    exits: Sequence[Sequence[Exit]]
    trained: Tensor | None = None
    terms: Tensor | None = None
    trained_terms: Tensor | None = None
    frozen: Sequence[str] = ()
    scales: Tensor | None = None
    kept: Sequence[str] = ()
    fixed: Sequence[str] = ()
    fresh: Sequence[str] = ()

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


@dataclass(frozen=True)
class Pull:
    """A regulariser that every client adds to its loss.

    It is strength / 2 ||w - w_start||^2 - <linear, w>, where w is all that the client trains, plus tail_strength
    sum ||B[:, c_n:]||_F ||A[c_n:, :]||_F over the low-rank adapters whose two factors it trains.

    Attributes:
        strength: The weight of the proximal term.
        linear: `{"r": [{name: (n_j, ...)}] * L, "shared": {name: (n, ...)}}`, rows as in `Uploads`; None for 0.
        tails: (N,) int64, the c_n: a client's rank-one terms from this one on are pulled to 0; None for no client's.
            Terms that a client does not hold are 0.
        tail_strength: The weight of the last sum.
    """

    strength: float
    linear: Mapping[str, Any] | None = None
    tails: Tensor | None = None
    tail_strength: float = 0.0

    @property
    def everywhere(self) -> bool:
        """Whether it concerns all that a client trains, and not the tails alone."""
        return self.strength != 0 or self.linear is not None or self.tails is None


class Objective(Protocol):
    """What a client minimises."""

    def __call__(self, exits: Sequence[Tensor], y: Tensor, t: int, /) -> Tensor:
        """Return the loss, a scalar.

        Args:
            exits: The logits (B, C) of each of the client's classifiers, shallow to deep.
            y: (B,) int64, the classes.
            t: The round, from 0.
        """
        ...


@dataclass(frozen=True)
class Job:
    """How clients train: what an engine needs besides data and allocation.

    Attributes:
        t: The round, from 0.
        seed: The cell's seed.
        optimizer: The suite's `train.optimizer`, resolved.
        clip: The largest gradient norm of a client; None for no limit.
        objective: What a client minimises.
        pull: A term of the loss that is not part of the reported loss, or None.
        micro_batch: How many images of a batch pass at once; None for all of them.
        checkpointing: Whether each layer's activations are computed again in the backward pass rather than kept.
        uploads: The suite's `train.uploads`: how updates are coded; None for no codec.
        downloads: The suite's `train.downloads`: how what clients start from is coded.
        forward: Called as `forward(client)` (`fedbench.engine.forward.ForwardClient`), it takes a client's local steps
            by forward passes alone, in place of the optimizer's, and returns the mean loss. None: steps along
            gradients of backward passes.
        layers: Called as `layers(n, step)`; of the layers that the client at position n holds, those that run in that
            step's batch, ascending, behind which its one classifier reads. None: all in every batch.
    """

    t: int
    seed: int
    optimizer: Mapping[str, Any]
    clip: float | None
    objective: Objective
    pull: Pull | None = None
    micro_batch: int | None = None
    checkpointing: bool = False
    uploads: Mapping[str, Any] | None = None
    downloads: Mapping[str, Any] | None = None
    forward: Callable[[Any], float] | None = None
    layers: Callable[[int, int], Sequence[int]] | None = None


@dataclass
class Uploads:
    """What came back from the N clients of a round.

    Attributes:
        r: `r[j][name]`, (n_j, ...), layer j's adapters from the n_j clients that train them, in the clients' order.
        shared: `shared[name]`, (n, ...), from the n clients that train it, in order.
        arrived: (N,) bool, whose rows came back. Ignore the others' rows.
        loss: (N,) the mean training loss; NaN for a client without a step.
        steps: (N,) the steps taken.
        seconds: (N,) the seconds taken.
        rejected: Why the server refused the upload of the client at a position. Such a client has not arrived.
        coordinates: For tensors that clients train in part, by place (`r/<layer>/<name>`, `shared/<name>`): which
            coordinates each row's client trained, bool, in the rows' shape or broadcast to it. Elsewhere a row holds
            what its client started from.
        spoilt: The positions whose uploads a fault has changed in transit.
        sent: Where there are such, `r` and `shared` as their clients sent them.
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
        """These uploads as their clients sent them, before any fault in transit."""
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
        """Return the uploads of an engine; `arrived` and `steps` are those of the cohort."""
        loss = loss.masked_fill(cohort.steps == 0, float("nan"))
        return cls(
            r, shared, cohort.arrives.clone(), loss, cohort.steps.clone(), seconds, coordinates=coordinates or {}
        )


@dataclass(frozen=True)
class Report:
    """What a round reports to the records.

    Attributes:
        plan: The plan followed.
        cohort: The clients that took part.
        uploads: What came back.
        cost: What each client paid.
    """

    plan: Plan
    cohort: Cohort
    uploads: Uploads
    cost: Sequence[ClientCost]
