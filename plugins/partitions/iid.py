"""Partition `iid`: no skew, all images dealt evenly at random whatever their class or domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, judged
from fedbench.types import MIXED, Clients
from fedbench.words import counted

if TYPE_CHECKING:
    import numpy as np


@judged("iid")
def make(clients: Count = 10) -> Callable[..., Clients]:
    """All training images, of all domains together, dealt at random to `clients` clients whose sizes differ by at
    most one.

    Where the data have several domains, a client counts to none of them (`fedbench.types.MIXED`).

    Raises: UserError where there are fewer training images than clients.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        if len(y) < clients:
            raise UserError(f"iid: {counted(len(y), 'training image')} for {counted(clients, 'client')}")
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


@hookimpl
def fedbench_register_partitions(register: Callable) -> None:
    register("iid", make)
