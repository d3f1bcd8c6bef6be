"""Partition `dirichlet`: feature and label skew, each domain split among its clients by a draw per class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, Positive, judged
from fedbench.types import Clients
from fedbench.words import counted

if TYPE_CHECKING:
    import numpy as np

DRAWS = 1000
HOPELESS, FAR = 10, 200  # so many draws are enough where each of them left as many clients with too few images


@judged("dirichlet")
def make(
    alpha: Positive = 0.5, clients_per_domain: Count = 5, balanced: bool = True, min_examples: Count = 10
) -> Callable[..., Clients]:
    """Split each domain among its clients, class by class, by shares p ~ Dirichlet(alpha).

    balanced: a client that already has its even share of the domain, N/n images, gets no more of a class.
    FedRA's text says only Dirichlet(0.5) and its released code draws so: hence True under both profiles.
    False is the plain draw. min_examples: a domain is drawn anew until each of its clients has as many.
    Client ids are consecutive, domain by domain.

    Raises: UserError where `min_examples` cannot be had, or was not within 1,000 draws.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        owner = np.empty(len(y), dtype=np.int64)
        for d in range(num_domains):
            own = np.flatnonzero(domain == d)
            try:
                drawn = draw_until(y[own], alpha, clients_per_domain, balanced, min_examples, generator)
            except UserError as error:
                raise UserError(f"dirichlet: domain {d}: {error}", option="min_examples") from None
            owner[own] = d * clients_per_domain + drawn
        return Clients.owning(owner, np.repeat(np.arange(num_domains), clients_per_domain))

    return partition


def draw_until(
    y: np.ndarray, alpha: float, n: int, balanced: bool, min_examples: int, generator: np.random.Generator
) -> np.ndarray:
    """(N,) int64: the owners of the images y (N,) by the first draw in which each of the n clients has `min_examples`.

    Raises: UserError where none of DRAWS is such, or none of the first HOPELESS is anywhere near.
    """
    import numpy as np

    if len(y) < n * min_examples:
        raise UserError(
            f"{counted(len(y), 'training image')}; {counted(n, 'client')} with min_examples {min_examples} need "
            f"{n * min_examples}"
        )
    classes = [np.flatnonzero(y == label) for label in np.unique(y)]
    best, fewest, draws = 0, n, 0
    while draws < (DRAWS if fewest < FAR else HOPELESS):
        owner, sizes = draw(classes, alpha, n, balanced, generator)
        if sizes.min() >= min_examples:
            return owner
        draws, best = draws + 1, max(best, int(sizes.min()))
        fewest = min(fewest, int((sizes < min_examples).sum()))
    raise UserError(
        f"in {draws:,} draws with alpha {alpha} over {len(y)} training images, the smallest of {n} clients "
        f"never had more than {best} (min_examples {min_examples}); "
        "take a larger alpha, fewer clients or a smaller min_examples"
    )


def draw(
    classes: Sequence[np.ndarray], alpha: float, n: int, balanced: bool, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One draw: the owner of every image, (N,) int64, and how many each of the n clients has, (n,); some may have none.

    classes: the positions of the images of each, which together are 0 to N - 1.
    """
    import numpy as np

    N = sum(map(len, classes))
    owner, sizes = np.empty(N, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for positions in classes:
        of_label = generator.permutation(positions)
        p = generator.dirichlet(np.full(n, alpha))
        if balanced:
            below = sizes < N / n  # somebody always is: not every image is given away yet
            p = p * below
            p = p / p.sum() if p.sum() > 0 else below / below.sum()  # a small alpha underflows to zeros
        ends = np.minimum((np.cumsum(p) * len(of_label)).astype(int), len(of_label))
        ends[-1] = len(of_label)
        parts = np.diff(ends, prepend=0)
        owner[of_label] = np.repeat(np.arange(n), parts)
        sizes += parts
    return owner, sizes


@hookimpl
def fedbench_register_partitions(register: Callable) -> None:
    register("dirichlet", make)
