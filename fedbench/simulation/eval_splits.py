"""Which test or validation images are scored together: those of a domain, or a client's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbench.errors import UserError
from fedbench.results.metric_direction import VALIDATION
from fedbench.types import GLOBAL, Clients, Dataset, Images

TEST = "test"  # what is scored beside VALIDATION, as results call it
MOST_BY_CLIENT = 100_000  # clients whose validation images are evaluated one by one: a row each in every evaluation


@dataclass(frozen=True)
class EvalSplit:
    """Positions (n,) in the test split, or of validation images in the training split, and how the results call
    them."""

    domain: str
    indices: np.ndarray
    client: int = GLOBAL
    split: str = TEST


def of_domains(dataset: Dataset, test: Images) -> list[EvalSplit]:
    """The test images of each domain."""
    return [EvalSplit(name, np.flatnonzero(test.domain == d)) for d, name in enumerate(dataset.domains)]


def of_clients(
    dataset: Dataset, train: Images, test: Images, clients: Clients, generator: np.random.Generator
) -> list[EvalSplit]:
    """For each client, test images that are distributed as its training images are.

    The test images of every domain and class are dealt in random order to the clients, in random order too, in
    proportion to how many training images of that domain and class they have; cumulative numbers are rounded. Each
    goes to one client, or to nobody where no client has that class of that domain. A client that gets none is left
    out.

    Raises: UserError where nobody gets any.
    """
    train_owner, test_owner = np.full(len(train), -1), np.full(len(test), -1)
    train_owner[clients.indices] = np.repeat(np.arange(len(clients)), clients.sizes)
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
    some, starts = np.unique(test_owner[by_owner], return_index=True)
    return [
        EvalSplit(dataset.domain_name(int(clients.domains[i])), own, i)
        for i, own in zip(some.tolist(), np.split(by_owner, starts[1:]), strict=True)
        if i >= 0
    ]


def of_validation(dataset: Dataset, train: Images, held: Clients | None, by_client: bool) -> list[EvalSplit]:
    """The validation images that clients hold out, client by client, or all of a domain; those that have any.

    held: the clients with them, positions in the training split. Raises UserError where too many clients would be
    validated one by one.
    """
    if held is None:
        return []
    if by_client:
        some = np.flatnonzero(held.sizes).tolist()
        if len(some) > MOST_BY_CLIENT:
            raise UserError(
                f"evaluation by client: {len(some):,} clients hold out validation images, and at most "
                f"{MOST_BY_CLIENT:,} are evaluated one by one; evaluate by domain, or register fewer clients"
            )
        return [
            EvalSplit(dataset.domain_name(c.domain), c.indices, c.id, VALIDATION) for c in map(held.__getitem__, some)
        ]
    everybodys = np.sort(held.indices)
    domain = train.domain[everybodys]
    found = [EvalSplit(name, everybodys[domain == d], split=VALIDATION) for d, name in enumerate(dataset.domains)]
    return [share for share in found if len(share.indices)]
