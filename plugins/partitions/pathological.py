"""Partition `pathological`: every client has images of a few classes alone (McMahan et al., arXiv 1602.05629, Sec. 3).

There, images sorted by class are cut into equal shards and each client gets two, so that most clients have images of
two classes. Here, as in what FedV calls Path-c and in most later work, the number of classes is exact: c of them for
each client, whose images are divided among the clients that have the class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, judged
from fedbench.types import Clients
from fedbench.words import counted

from .iid import evenly

if TYPE_CHECKING:
    import numpy as np

TOGETHER = 2**16  # clients, about, whose classes are drawn at once


@judged("pathological")
def make(classes_per_client: Count = 2, clients_per_domain: Count = 5) -> Callable[..., Clients]:
    """Each domain's clients have images of exactly `classes_per_client` random classes each, and all images belong to
    somebody.

    The numbers of clients that have a class differ by at most one over the classes of a domain, and so do the numbers
    of images that the clients of a class have of it. Client ids are consecutive, domain by domain.

    Raises: UserError where a domain has fewer classes than a client is to have, more than its clients can cover (the
    images of some would be nobody's), or fewer images of a class than clients that are to have it.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        owner = np.empty(len(y), dtype=np.int64)
        for d in range(num_domains):
            own = np.flatnonzero(domain == d)
            labels, of_class = np.unique(y[own], return_inverse=True)
            try:
                has = classes(len(labels), clients_per_domain, classes_per_client, generator)
                drawn = divided(of_class, has, generator)
            except UserError as error:
                raise UserError(f"pathological: domain {d}: {error}", option=error.option) from None
            owner[own] = d * clients_per_domain + drawn
        return Clients.owning(owner, np.repeat(np.arange(num_domains), clients_per_domain))

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
            f"{n} clients of {c} classes cover {n * c} of {num_classes} classes, and the images of the others would "
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
                f"a class has {counted(len(of_label), 'training image')}, fewer than its "
                f"{counted(len(clients), 'client')}"
            )
        owner[of_label] = clients[evenly(len(of_label), len(clients))]
    return owner


@hookimpl
def fedbench_register_partitions(register: Callable) -> None:
    register("pathological", make)
