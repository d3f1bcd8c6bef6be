"""Partition `by_domain`: feature skew, every client sees one domain (FedRA: six domains, six clients)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, judged
from fedbench.types import Clients

from .iid import evenly

if TYPE_CHECKING:
    import numpy as np


@judged("by_domain")
def make(clients_per_domain: Count = 1) -> Callable[..., Clients]:
    """One client per domain, or each domain dealt evenly, at random, to `clients_per_domain` clients.

    Client ids are consecutive, domain by domain.

    Raises: UserError where a domain has fewer training images than clients.
    """

    def partition(y: np.ndarray, domain: np.ndarray, num_domains: int, generator: np.random.Generator) -> Clients:
        import numpy as np

        owner = np.empty(len(y), dtype=np.int64)
        for d in range(num_domains):
            own = np.flatnonzero(domain == d)
            if len(own) < clients_per_domain:
                raise UserError(
                    f"by_domain: domain {d} has {len(own)} training images for {clients_per_domain} clients",
                    option="clients_per_domain",
                )
            dealt = generator.permutation(own) if clients_per_domain > 1 else own
            owner[dealt] = d * clients_per_domain + evenly(len(own), clients_per_domain)
        return Clients.owning(owner, np.repeat(np.arange(num_domains), clients_per_domain))

    return partition


@hookimpl
def fedbench_register_partitions(register: Callable) -> None:
    register("by_domain", make)
