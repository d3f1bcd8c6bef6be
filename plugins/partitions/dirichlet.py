"""Partition `dirichlet`: feature and label skew, each domain split among its clients by a draw per class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, Positive, judged
from fedbench.types import Client
from fedbench.words import counted

if TYPE_CHECKING:
    import numpy as np

DRAWS = 1000


@judged("dirichlet")
def make(
    alpha: Positive = 0.5, clients_per_domain: Count = 5, balanced: bool = True, min_examples: Count = 10
) -> Callable[..., list[Client]]:
    """Split each domain among its clients, class by class, by shares p ~ Dirichlet(alpha).

    balanced: a client that already has its even share of the domain, N/n images, gets no more of a class.
    FedRA's text says only Dirichlet(0.5) and its released code draws so: hence True under both profiles.
    False is the plain draw. min_examples: a domain is drawn anew until each of its clients has as many.
    Client ids are consecutive, domain by domain.

    Raises: UserError where `min_examples` cannot be had, or was not within 1,000 draws.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> list[Client]:
        import numpy as np

        clients: list[Client] = []
        for d in range(num_domains):
            own = np.flatnonzero(domain == d)
            try:
                parts = draw_until(y[own], alpha, clients_per_domain, balanced, min_examples, generator)
            except UserError as error:
                raise UserError(f"dirichlet: domain {d}: {error}", option="min_examples") from None
            for part in parts:
                clients.append(Client(id=len(clients), domain=d, indices=own[part]))
        return clients

    return partition


def draw_until(
    y: np.ndarray, alpha: float, n: int, balanced: bool, min_examples: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """The first draw in which each of the n clients has `min_examples` of the images y (N,)."""
    if len(y) < n * min_examples:
        raise UserError(
            f"{counted(len(y), 'training image')}; {counted(n, 'client')} with min_examples {min_examples} need "
            f"{n * min_examples}"
        )
    best = 0
    for _ in range(DRAWS):
        parts = draw(y, alpha, n, balanced, generator)
        smallest = min(len(part) for part in parts)
        if smallest >= min_examples:
            return parts
        best = max(best, smallest)
    raise UserError(
        f"in {DRAWS:,} draws with alpha {alpha} over {len(y)} training images, the smallest of {n} clients "
        f"never had more than {best} (min_examples {min_examples}); "
        "take a larger alpha, fewer clients or a smaller min_examples"
    )


def draw(y: np.ndarray, alpha: float, n: int, balanced: bool, generator: np.random.Generator) -> list[np.ndarray]:
    """One draw: n ascending arrays of positions in y (N,) that together hold each position once; some may be empty."""
    import numpy as np

    owner = np.empty(len(y), dtype=np.int64)
    sizes = np.zeros(n, dtype=np.int64)
    for label in np.unique(y):
        of_label = generator.permutation(np.flatnonzero(y == label))
        p = generator.dirichlet(np.full(n, alpha))
        if balanced:
            below = sizes < len(y) / n  # somebody always is: not every image is given away yet
            p = p * below
            p = p / p.sum() if p.sum() > 0 else below / below.sum()  # a small alpha underflows to zeros
        cuts = (np.cumsum(p) * len(of_label)).astype(int)[:-1]
        owner[of_label] = np.searchsorted(cuts, np.arange(len(of_label)), side="right")
        sizes += np.bincount(owner[of_label], minlength=n)
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(sizes)[:-1])


@hookimpl
def fedbench_register_partitions(register: Callable) -> None:
    register("dirichlet", make)
