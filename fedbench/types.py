"""The nouns that the parts of fedbench hand to each other, with their shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

SIZES = ("capacities", "ranks", "widths")  # what a scenario may give its clients, as suites call it
MIXED = -1  # the domain of a client whose images come from several
GLOBAL = -1  # the number that stands for the global model where results name a client


@dataclass(frozen=True)
class Images:
    """Decoded images with their labels.

    x: (n, 3, H, W) uint8, or float32 in and near [0, 1], where 1 is what 255 is in uint8; possibly a memory map · y:
    (n,) int64 class · domain: (n,) int64 index into `Dataset.domains`.
    """

    x: np.ndarray
    y: np.ndarray
    domain: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Splits:
    """The two halves of a data set, and the paths of images that could not be read and were skipped."""

    train: Images
    test: Images
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """What a dataset plugin returns: the facts at once, the pixels when `load()` is called.

    `fingerprint` changes whenever an image, a label or the split could; it enters the identity of every cell.
    size: the bytes of all its decoded images, where they are known before.
    """

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    fingerprint: str
    load: Callable[[], Splits]
    size: int | None = None

    def domain_name(self, domain: int) -> str:
        """What the results call a client's domain: `mixed` where it has several."""
        return "mixed" if domain == MIXED else self.domains[domain]


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
    its clients ranks · widths: (clients, 2) float64, the smallest and largest width, where it gives widths.
    """

    clients: Sequence[Client]
    capacities: np.ndarray
    num_layers: int
    rounds: int
    ranks: np.ndarray | None = None
    widths: np.ndarray | None = None


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
    client multiplies its low-rank products B A with in place of the adapter's own alpha / R.
    """

    M: Tensor
    exits: Sequence[Sequence[Exit]]
    trained: Tensor | None = None
    terms: Tensor | None = None
    trained_terms: Tensor | None = None
    frozen: Sequence[str] = ()
    scales: Tensor | None = None

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

    r[j][name]: (n_j, ...) layer j's adapters from the n_j clients that train them, in the order of n · shared[name]:
    (n, ...) from the clients that train it, in order · arrived (N,) bool, whose rows came back: the others' must be
    left alone · loss (N,) mean training loss, NaN after no step · steps (N,) steps taken · seconds (N,) · rejected: why
    the server refused the upload of the client at a position; such a client has not arrived · coordinates: of tensors
    that clients train in part, by place (`r/<layer>/<name>`, `shared/<name>`), which coordinates each row's client
    trained, bool, in the rows' shape or broadcast to it; elsewhere a row holds what its client started from.
    """

    r: list[dict[str, Tensor]]
    shared: dict[str, Tensor]
    arrived: Tensor
    loss: Tensor
    steps: Tensor
    seconds: Tensor
    rejected: Mapping[int, str] = field(default_factory=dict)
    coordinates: Mapping[str, Tensor] = field(default_factory=dict)

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
class Sent:
    """One kind of thing that crosses the line between a client and the server, in bytes.

    what: `backbone` (frozen), `adapters`, `classifiers`, `weights`, `features`, `gradients`, `losses` · down, up: to
    and from the client in a round, however many its steps · down_per_image, up_per_image: added by every image of
    every step · down_last, up_last: added by every image of the round's last step · down_after: sent back to a client
    whose work was taken.
    """

    what: str
    down: int = 0
    up: int = 0
    down_per_image: int = 0
    up_per_image: int = 0
    down_last: int = 0
    up_last: int = 0
    down_after: int = 0

    def bytes_of(self, images: int, last: int) -> tuple[int, int]:
        """(down, up) of a round of so many images, `last` of them in its last step."""
        return (
            self.down + self.down_per_image * images + self.down_last * last,
            self.up + self.up_per_image * images + self.up_last * last,
        )


@dataclass(frozen=True)
class ServerCost:
    """What the server computes for one client in one round.

    flops_per_image: of every image of every step · flops_last: more, for every image of the round's last step ·
    memory_bytes: what it holds at once: parameters, gradients, and the activations saved for a batch.
    """

    flops_per_image: int = 0
    flops_last: int = 0
    memory_bytes: int = 0

    def flops(self, images: int, last: int) -> int:
        """Of a round of so many images, `last` of them in its last step."""
        return self.flops_per_image * images + self.flops_last * last


@dataclass(frozen=True)
class ClientCost:
    """One client in one round.

    flops_per_image: forward and backward of one image (2 FLOPs a multiply-add) · bytes_down: frozen layers, adapters
    and classifiers sent to the client; the frozen part is counted in every round, as FedRA's step 2 sends it ·
    bytes_up: adapters and classifiers sent back · memory_bytes: parameters, gradients, optimiser state, what a
    regulariser keeps, and the activations saved for a batch (an estimate: allocator and workspace are not in it) ·
    sent: what these bytes are, kind by kind, and what every step adds to them · server: of methods whose server
    computes along · flops_last: more, for every image of the round's last step · epochs_beside: passes over its images
    in which a client trains a model of its own besides, within the same limits, at the same FLOPs an image.
    """

    flops_per_image: int
    bytes_down: int
    bytes_up: int
    memory_bytes: int
    sent: tuple[Sent, ...] = ()
    server: ServerCost | None = None
    flops_last: int = 0
    epochs_beside: int = 0

    def flops(self, images: int, last: int, arrives: bool = True, beside: int = 0) -> int:
        """Of a round of so many images, `last` of them in its last step, which a client whose work is lost has not
        come to; beside: images of its own model's steps."""
        return self.flops_per_image * (images + beside) + self.flops_last * (last if arrives else 0)

    def exchange(
        self, images: int, last: int, arrives: bool = True, refused: bool = False
    ) -> list[tuple[str, int, int]]:
        """(what, bytes down, bytes up) of a round of so many images, `last` of them in its last step. Of a client
        whose work is lost, what steps exchange has crossed all the same, what ends a round has not; one whose work is
        refused has sent it and gets nothing back."""
        given = self.sent or (Sent("weights", self.bytes_down, self.bytes_up),)
        lines = []
        for one in given:
            down, up = one.bytes_of(images, last if arrives else 0)
            back = one.down_after if arrives and not refused else 0
            lines.append((one.what, down + back, up if arrives else up - one.up))
        return lines


@dataclass(frozen=True)
class Report:
    """What a round tells the record: the plan followed, who took part, what came back, and what each client paid."""

    plan: Plan
    cohort: Cohort
    uploads: Uploads
    cost: Sequence[ClientCost]
