"""Who could take part, on which devices and in which sizes, and who does in a round."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, overload

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Device:
    """The figures of one device on which a round of training depends.

    Attributes:
        name: How suites and tables call it.
        memory: Bytes that training may take.
        flops: FLOP/s that training sustains in fp32; a multiply-add counts as 2.
        flops_bf16: The same in bf16.
        down: Bytes/s from the server.
        up: Bytes/s to the server.
        watts: Power drawn while it trains; None where no source gives it.
        source: Where the figures are from. It is not part of a cell's identity.
        message: Seconds that each message takes in addition to its bytes.
    """

    name: str
    memory: int
    flops: float
    flops_bf16: float
    down: float
    up: float
    watts: float | None = None
    source: str = ""
    message: float = 0.0

    def flops_at(self, precision: str) -> float:
        """Return the FLOP/s in `fp32` or `bf16`."""
        return self.flops_bf16 if precision == "bf16" else self.flops


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a model one client holds, in the terms of a method.

    Attributes:
        capacity: L_n, how many layers the client can hold.
        rank: r_n, for a method whose clients differ in rank.
        width: The share of the hidden units of every layer, for a method whose clients differ in width.
    """

    capacity: int
    rank: int | None = None
    width: float | None = None

    @property
    def order(self) -> tuple[int, int, float]:
        """The key that sorts sizes from the smallest to the largest."""
        return self.capacity, self.rank or 0, self.width or 0.0

    def __str__(self) -> str:
        """`rank 4`, `width 0.5` or `12 layers`: the number in which the sizes of its method differ."""
        if self.width is not None:
            return f"width {self.width:g}"
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"{self.capacity} layer{'s' if self.capacity != 1 else ''}"


SIZES = ("capacities", "ranks", "widths")  # what a scenario may give its clients, as suites call it
WAYS = ("by_client", "by_domain", "cycle")  # to say it by a list


def assignment(settings: Mapping[str, Any]) -> dict[tuple[str, str], list[Any]]:
    """Who has which size or device, as far as settings list it: by setting and way, such as ("ranks", "by_client").

    What is drawn anew (`uniform`, `shares`) or is the same for all is not among it.
    """
    given = [(key, way) for key in (*SIZES, "devices") for way in WAYS if way in (settings.get(key) or ())]
    return {(key, way): settings[key][way] for key, way in given}


GLOBAL = -1  # the number that stands for the global model where results name a client


@dataclass(frozen=True, slots=True)
class Client:
    """One registered client.

    Attributes:
        id: Its number.
        domain: An index into `Dataset.domains`, or MIXED.
        indices: (n_i,) int64, the positions of its images in the training split.
    """

    id: int
    domain: int
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)


class Clients(Sequence[Client]):
    """Many clients, 0, 1, 2, ..., in a few arrays; a `Client` is made when it is asked for.

    Attributes:
        domains: (n,) int64, the domain of each.
        indices: (images,) int64, the positions of all images; client i has `indices[starts[i]:starts[i + 1]]`.
        starts: (n + 1,) int64.
        sizes: (n,) int64, how many images each has.
    """

    def __init__(self, domains: np.ndarray, sizes: np.ndarray, indices: np.ndarray) -> None:
        """Make n clients.

        Args:
            domains: (n,) int64.
            sizes: (n,) int64.
            indices: (images,) int64, those of client 0 first.
        """
        import numpy as np

        self.domains, self.indices = domains, indices
        self.starts = np.zeros(len(domains) + 1, dtype=np.int64)
        np.cumsum(sizes, out=self.starts[1:])
        self._sizes = array("q", np.asarray(sizes, dtype=np.int64).tobytes())  # read one by one, as Python's integers

    @classmethod
    def of(cls, clients: Sequence[Client]) -> Clients:
        """Return the same clients, numbered by their places."""
        import numpy as np

        if isinstance(clients, Clients):
            return clients
        domains, sizes = (
            np.fromiter(each, dtype=np.int64, count=len(clients))
            for each in ((client.domain for client in clients), map(len, clients))
        )
        none = np.empty(0, dtype=np.int64)
        return cls(domains, sizes, np.concatenate([none, *(client.indices for client in clients)]))

    @classmethod
    def owning(cls, owner: np.ndarray, domains: np.ndarray) -> Clients:
        """Return clients by the owner of every position.

        Args:
            owner: (images,) int64, the client of each position. A client has its positions in ascending order.
            domains: (n,) int64.
        """
        import numpy as np

        sizes = np.bincount(owner, minlength=len(domains))
        return cls(domains, sizes, np.argsort(owner, kind="stable"))

    @property
    def sizes(self) -> np.ndarray:
        """(n,) int64, how many images each client has."""
        import numpy as np

        return np.frombuffer(self._sizes, dtype=np.int64)

    def examples(self, i: int) -> int:
        """Return how many images client i has."""
        return self._sizes[i]

    def at(self, indices: np.ndarray) -> Clients:
        """Return the same clients with other positions, (images,), each in the place of the old one."""
        return type(self)(self.domains, self.sizes, indices)

    def __len__(self) -> int:
        return len(self.domains)

    @overload
    def __getitem__(self, i: int) -> Client: ...

    @overload
    def __getitem__(self, i: slice) -> list[Client]: ...

    def __getitem__(self, i: int | slice) -> Client | list[Client]:
        if isinstance(i, slice):
            return [self[n] for n in range(len(self))[i]]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        i %= len(self)
        return Client(i, int(self.domains[i]), self.indices[self.starts[i] : self.starts[i + 1]])


@dataclass(frozen=True)
class Scenario:
    """Who could take part: every registered client with the sizes that it may have.

    Attributes:
        clients: The registered clients.
        capacities: (clients, 2) int64, the smallest and the largest L_n.
        num_layers: L.
        rounds: T.
        ranks: (clients, 2) int64, the smallest and the largest r_n, where the scenario gives ranks.
        widths: (clients, 2) float64, the smallest and the largest width, where the scenario gives widths.
        fitting: Whether clients have devices and their sizes are not known yet. The method is asked for its sizes and
            their costs, may be given any of them, and is built again with those that fit.
    """

    clients: Sequence[Client]
    capacities: np.ndarray
    num_layers: int
    rounds: int
    ranks: np.ndarray | None = None
    widths: np.ndarray | None = None
    fitting: bool = False

    def different(self, what: str) -> list[tuple[Any, Any]]:
        """Return the distinct (smallest, largest) sizes of clients, in order.

        Args:
            what: One of SIZES. The list is empty where the scenario does not give it.
        """
        import numpy as np

        given = getattr(self, what)
        if given is None:
            return []
        rows = given[:1] if given.strides[0] == 0 else given  # the same for everybody
        lows, place = np.unique(rows[:, 0], return_inverse=True)
        return sorted(
            (low, high) for i, low in enumerate(lows.tolist()) for high in np.unique(rows[place == i, 1]).tolist()
        )

    def some(self, most: int = 1000) -> np.ndarray:
        """Return (m,) int64, in order: all clients, or of many the first `most` and the first of every smallest L_n."""
        import numpy as np

        first = np.unique(self.capacities[:, 0], return_index=True)[1]
        return np.union1d(np.arange(min(most, len(self.capacities))), first)


@dataclass(frozen=True)
class Cohort:
    """The N clients of one round.

    Attributes:
        ids: (N,) their numbers.
        capacities: (N,) int64, the L_n.
        num_examples: (N,) int64, the |D_n|.
        steps: (N,) int64, the optimiser steps that each takes.
        batches: `batches(n)` yields the (x, y) batches of the client at position n, the same for every engine.
        arrives: (N,) bool, whose update will come back; by default all.
        ranks: (N,) int64, the r_n, where the scenario gives ranks.
        widths: (N,) float64, the share of the hidden units of every layer that a client can hold, where the scenario
            gives widths.
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
        """Return the same round with the clients at positions `chosen` alone."""
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


def rate_of(rates: Sequence[float], L_n: float, L: int, width: float | None = None) -> float | None:
    """Return the largest rate of a narrow model that a client can hold, None where it can hold none.

    Where the scenario gives it a width: the largest rate up to that. Else the largest g whose share of the weights,
    about g^2, is at most L_n / L, the share that methods of unequal depth are given by the same capacity.
    """
    fits = [g for g in rates if (g <= width + 1e-9 if width is not None else g * g <= L_n / L + 1e-9)]
    return max(fits, default=None)
