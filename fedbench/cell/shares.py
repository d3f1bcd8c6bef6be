"""Which test or validation images are scored together: those of a domain, or a client's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbench.errors import UserError
from fedbench.results.choice import VALIDATION
from fedbench.types import GLOBAL, Client, Dataset, Images

TEST = "test"  # what is scored beside VALIDATION, as results call it


@dataclass(frozen=True)
class Share:
    """Positions (n,) in the test split, or of validation images in the training split, and how the results call
    them."""

    domain: str
    indices: np.ndarray
    client: int = GLOBAL
    split: str = TEST


def of_domains(dataset: Dataset, test: Images) -> list[Share]:
    """The test images of each domain."""
    return [Share(name, np.flatnonzero(test.domain == d)) for d, name in enumerate(dataset.domains)]


def of_clients(
    dataset: Dataset, train: Images, test: Images, clients: Sequence[Client], generator: np.random.Generator
) -> list[Share]:
    """For each client, test images that are distributed as its training images are.

    The test images of every domain and class are dealt in random order to the clients, in random order too, in
    proportion to how many training images of that domain and class they have; cumulative numbers are rounded. Each
    goes to one client, or to nobody where no client has that class of that domain. A client that gets none is left
    out.

    Raises: UserError where nobody gets any.
    """
    train_owner, test_owner = np.full(len(train), -1), np.full(len(test), -1)
    for client in clients:
        train_owner[client.indices] = client.id
    trained, tested = (images.domain * len(dataset.classes) + images.y for images in (train, test))
    for kind in np.unique(tested):
        holders = train_owner[trained == kind]
        images, order = generator.permutation(np.flatnonzero(tested == kind)), generator.permutation(len(clients))
        held = np.bincount(holders[holders >= 0], minlength=len(clients))[order]
        if held.any():
            ends = np.rint(np.cumsum(held) * len(images) / held.sum())
            test_owner[images] = order[np.searchsorted(ends, np.arange(len(images)), side="right")]
    if (test_owner < 0).all():
        raise UserError("evaluation by client: no test image is of a domain and class that a client trains on")
    by_owner = np.argsort(test_owner, kind="stable")
    ends = np.searchsorted(test_owner[by_owner], range(len(clients) + 1))
    return [
        Share(dataset.domain_name(client.domain), by_owner[ends[i] : ends[i + 1]], i)
        for i, client in enumerate(clients)
        if ends[i] < ends[i + 1]
    ]


def of_validation(
    dataset: Dataset, train: Images, clients: Sequence[Client], held: Sequence[np.ndarray], by_client: bool
) -> list[Share]:
    """The validation images that clients hold out, client by client, or all of a domain; those that have any.

    held: (m_n,) of each client, positions in the training split.
    """
    if by_client:
        owned = zip(clients, held, strict=True)
        return [Share(dataset.domain_name(c.domain), own, c.id, VALIDATION) for c, own in owned if len(own)]
    everybodys = np.sort(np.concatenate(held))
    domain = train.domain[everybodys]
    found = [Share(name, everybodys[domain == d], split=VALIDATION) for d, name in enumerate(dataset.domains)]
    return [share for share in found if len(share.indices)]
