"""Partitions: who owns which training images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, Positive, judged
from fedbench.types import MIXED, Clients
from fedbench.words import counted

if TYPE_CHECKING:
    import numpy as np

# Partition `iid`: no skew, all images dealt evenly at random whatever their class or domain


@judged("iid")
def iid(clients: Count = 10) -> Callable[..., Clients]:
    """All training images, of all domains together, dealt at random to `clients` clients whose sizes differ by at
    most one.

    Where the data have several domains, a client counts to none of them (`fedbench.types.MIXED`).

    Raises: UserError where there are fewer training images than clients.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        if len(y) < clients:
            raise UserError(f"iid: {counted(len(y), 'training example')} for {counted(clients, 'client')}")
        owner = np.empty(len(y), dtype=np.int64)
        owner[generator.permutation(len(y))] = evenly(len(y), clients)
        return Clients.owning(owner, np.full(clients, MIXED if num_domains > 1 else 0))

    return partition


def evenly(images: int, clients: int) -> np.ndarray:
    """(images,) int64, ascending: the owner of each where the first clients have one more than the last, as
    `numpy.array_split` cuts."""
    import numpy as np

    each, more = divmod(images, clients)
    return np.repeat(np.arange(clients), each + (np.arange(clients) < more))


# Partition `by_domain`: feature skew, every client sees one domain (FedRA: six domains, six clients)


@judged("by_domain")
def by_domain(clients_per_domain: Count = 1) -> Callable[..., Clients]:
    """One client per domain, or each domain dealt evenly, at random, to `clients_per_domain` clients.

    Client ids are consecutive, domain by domain. A domain without training images, which is only tested, has none.

    Raises: UserError where a domain has fewer training images than clients.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        owner = np.empty(len(y), dtype=np.int64)
        trained = np.unique(domain)
        for place, d in enumerate(trained):
            own = np.flatnonzero(domain == d)
            if len(own) < clients_per_domain:
                raise UserError(
                    f"by_domain: domain {d} has {len(own)} training examples for {clients_per_domain} clients",
                    option="clients_per_domain",
                )
            dealt = generator.permutation(own) if clients_per_domain > 1 else own
            owner[dealt] = place * clients_per_domain + evenly(len(own), clients_per_domain)
        return Clients.owning(owner, np.repeat(trained, clients_per_domain))

    return partition


# Partition `dirichlet`: feature and label skew, each domain split among its clients by a draw per class


DRAWS = 1000
HOPELESS, FAR = 10, 200  # so many draws are enough where each of them left as many clients with too few images


@judged("dirichlet")
def dirichlet(
    alpha: Positive = 0.5, clients_per_domain: Count = 5, balanced: bool = True, min_examples: Count = 10
) -> Callable[..., Clients]:
    """Split each domain among its clients, class by class, by shares p ~ Dirichlet(alpha).

    balanced: a client that already has its even share of the domain, N/n images, gets no more of a class.
    FedRA's text says only Dirichlet(0.5) and its released code draws so: hence True under both profiles.
    False is the plain draw. min_examples: a domain is drawn again until each of its clients has as many.
    Client ids are consecutive, domain by domain. A domain without training images, which is only tested, has none.

    Raises: UserError where `min_examples` cannot be had, or was not within 1,000 draws.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        owner = np.empty(len(y), dtype=np.int64)
        trained = np.unique(domain)
        for place, d in enumerate(trained):
            own = np.flatnonzero(domain == d)
            try:
                drawn = draw_until(y[own], alpha, clients_per_domain, balanced, min_examples, generator)
            except UserError as error:
                raise UserError(f"dirichlet: domain {d}: {error}", option="min_examples") from None
            owner[own] = place * clients_per_domain + drawn
        return Clients.owning(owner, np.repeat(trained, clients_per_domain))

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
            f"{counted(len(y), 'training example')}; {counted(n, 'client')} with min_examples {min_examples} need "
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
        f"in {draws:,} draws with alpha {alpha} over {len(y)} training examples, the smallest of {n} clients "
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


# Partition `pathological`: every client has images of a few classes alone (McMahan et al., arXiv 1602.05629, Sec. 3).
# There, images sorted by class are cut into equal shards and each client gets two, so that most clients have images of
# two classes. Here, as in what FedV calls Path-c and in most later work, the number of classes is exact: c of them for
# each client, whose images are divided among the clients that have the class.


TOGETHER = 2**16  # clients, about, whose classes are drawn at once


@judged("pathological")
def pathological(classes_per_client: Count = 2, clients_per_domain: Count = 5) -> Callable[..., Clients]:
    """Each domain's clients have images of exactly `classes_per_client` random classes each, and all images belong to
    somebody.

    The numbers of clients that have a class differ by at most one over the classes of a domain, and so do the numbers
    of images that the clients of a class have of it. In a domain that lacks so many classes, clients have all that it
    has. Client ids are consecutive, domain by domain. A domain without training images, which is only tested, has none.

    Raises: UserError where no domain has as many classes as a client is to have, or one has more than its clients can
    cover (the images of some would be nobody's), or fewer images of a class than clients that are to have it.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        owner = np.empty(len(y), dtype=np.int64)
        trained = np.unique(domain)
        parts = [np.flatnonzero(domain == d) for d in trained]
        most = max((len(np.unique(y[own])) for own in parts), default=0)
        for place, (d, own) in enumerate(zip(trained, parts, strict=True)):
            labels, of_class = np.unique(y[own], return_inverse=True)
            c = min(classes_per_client, len(labels)) if classes_per_client <= most else classes_per_client
            try:
                has = classes(len(labels), clients_per_domain, c, generator)
                drawn = divided(of_class, has, generator)
            except UserError as error:
                raise UserError(f"pathological: domain {d}: {error}", option=error.option) from None
            owner[own] = place * clients_per_domain + drawn
        return Clients.owning(owner, np.repeat(trained, clients_per_domain))

    return partition


def classes(num_classes: int, n: int, c: int, generator: np.random.Generator) -> np.ndarray:
    """(n, num_classes) bool: which c classes each client has. Client after client takes those that the fewest have so
    far, chance deciding between equals."""
    import numpy as np

    if c > num_classes:
        raise UserError(
            f"classes_per_client {c} is above the {num_classes} classes there are", option="classes_per_client"
        )
    if n * c < num_classes:
        raise UserError(
            f"{n} clients of {c} classes cover {n * c} of {num_classes} classes, and the examples of the others would "
            f"be nobody's; take at least {-(-num_classes // c)} clients_per_domain or "
            f"{-(-num_classes // n)} classes_per_client",
            option="clients_per_domain",
        )
    has = np.zeros((n, num_classes), dtype=bool)
    lap = num_classes // math.gcd(num_classes, c)  # after so many clients, all classes have equally many again
    together = lap * max(1, TOGETHER // lap)
    for first in range(0, n, together):
        some = has[first : first + together]
        chance = generator.random(some.shape)  # the same numbers as those drawn client by client
        takers = np.zeros(some[::lap].shape, dtype=np.int64)
        for client in range(min(lap, len(some))):  # of every lap at once
            rows = some[client::lap]
            chosen = np.lexsort((chance[client::lap], takers[: len(rows)]))[:, :c]
            np.put_along_axis(rows, chosen, True, axis=1)
            takers[: len(rows)] += rows
    return has


def divided(y: np.ndarray, has: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """(N,) int64: the client that gets each of the images y (N,), classes from 0. Every class is dealt evenly, at
    random, to the clients that have it. has: (n, classes) bool."""
    import numpy as np

    owner = np.empty(len(y), dtype=np.int64)
    for label, takers in enumerate(has.T):
        of_label, clients = generator.permutation(np.flatnonzero(y == label)), np.flatnonzero(takers)
        if len(of_label) < len(clients):
            raise UserError(
                f"a class has {counted(len(of_label), 'training example')}, fewer than its "
                f"{counted(len(clients), 'client')}"
            )
        owner[of_label] = clients[evenly(len(of_label), len(clients))]
    return owner


@hookimpl
def fedbench_register_partitions(register: Callable) -> None:
    register("iid", iid)
    register("by_domain", by_domain)
    register("dirichlet", dirichlet)
    register("pathological", pathological)
