"""Training data that no client trains on: the server's proxy data, drawn before the partition, and each client's
validation data, drawn after it. Images in the words below may be texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedbench.data.splitting import whole_groups
from fedbench.errors import UserError
from fedbench.seeding import numpy_generator
from fedbench.types import Client, Clients, Images, Texts

Partition = Callable[[np.ndarray, np.ndarray, int, np.random.Generator], Sequence[Client]]


def proxy_of(images: Images | Texts, how: Mapping[str, Any] | None, seed: int) -> np.ndarray:
    """(m,) int64, in order: the positions of the server's images in the training split; none without `data.proxy`.

    how: `{images: m}` or `{fraction: p}`, which is rounded and at least one. Raises UserError where nothing would be
    left for clients.
    """
    if not how:
        return np.arange(0)
    n = len(images)
    m = how["images"] if "images" in how else max(1, round(how["fraction"] * n))
    if m >= n:
        raise UserError(f"data.proxy: {m} of the {n} training examples; clients need at least one of them")
    return stratified(images, np.arange(n), m, numpy_generator(seed, use="proxy images"))


def stratified(images: Images | Texts, among: np.ndarray, m: int, draw: np.random.Generator) -> np.ndarray:
    """(m,) int64, in order: m of the positions `among`, of each class of each domain as large a part as of all.

    Numbers are rounded by the largest remainders, equal ones by chance.
    """
    y, domain = images.y[among], images.domain[among]
    _, which, sizes = np.unique(domain * (y.max() + 1) + y, return_inverse=True, return_counts=True)
    counts, left = np.divmod(m * sizes, len(among))
    order = draw.permutation(len(sizes))
    largest = order[np.argsort(-left[order], kind="stable")]
    counts[largest[: m - counts.sum()]] += 1
    ordered, ends = among[np.argsort(which, kind="stable")], np.cumsum(sizes)
    some = np.flatnonzero(counts)  # to choose none of a group takes nothing from the draw
    chosen = [draw.choice(ordered[ends[g] - sizes[g] : ends[g]], counts[g], replace=False) for g in some]
    return np.sort(np.concatenate(chosen))


def dealt(
    partition: Partition, images: Images | Texts, num_domains: int, seed: int, held_out: np.ndarray
) -> Sequence[Client]:
    """The clients, and which of the images that are not held out each has, by its position in the training split."""
    draw = numpy_generator(seed, use="partition")
    if not len(held_out):
        return partition(images.y.copy(), images.domain.copy(), num_domains, draw)
    rest = np.setdiff1d(np.arange(len(images)), held_out)
    clients = partition(images.y[rest], images.domain[rest], num_domains, draw)
    if isinstance(clients, Clients):
        return clients.at(rest[clients.indices])
    return [replace(client, indices=rest[client.indices]) for client in clients]


def without_validation(
    images: Images | Texts, clients: Clients, fraction: float | None, seed: int
) -> tuple[Clients, Clients | None]:
    """The clients with what is left for their training, and with their validation images, in order; None without
    `evaluation.validation`.

    A client of n images holds round(fraction n) of them out, of each class of each domain as large a part as of all,
    and trains on one at least, and on the lone training image of a class in a domain, which else nobody would learn.
    The draw knows of nobody but the client. Of images in groups it holds whole groups out, of all clients that have
    images of one, and so comes near that number. Raises UserError where nobody has any.
    """
    if fraction is None:
        return clients, None
    if images.group is not None:
        return _without_groups(images, images.group, clients, fraction, seed)
    lone = _lone(images)
    m = np.minimum(np.rint(fraction * clients.sizes).astype(np.int64), clients.sizes - 1)  # to even, as `round`
    if lone.any():
        owner = np.repeat(np.arange(len(clients)), clients.sizes)
        m = np.minimum(m, np.bincount(owner[~lone[clients.indices]], minlength=len(clients)))
    if m.max() < 1:
        raise UserError(
            f"evaluation.validation: {fraction:g} of a client's training examples is less than one, even of the "
            f"{clients.sizes.max()} that the largest has; hold out a larger part, or deal them to fewer clients"
        )
    held = [_validation_of(images, clients[i], int(m[i]), seed, lone) for i in np.flatnonzero(m > 0).tolist()]
    out = np.concatenate(held)
    gone = np.zeros(len(images), dtype=bool)
    gone[out] = True
    kept = clients.indices[~gone[clients.indices]]
    m = np.maximum(m, 0)
    return Clients(clients.domains, clients.sizes - m, kept), Clients(clients.domains, m, out)


def _without_groups(
    images: Images | Texts, group: np.ndarray, clients: Clients, fraction: float, seed: int
) -> tuple[Clients, Clients]:
    """The same for images in groups, whichever clients have them. group: (n,) the group of each image."""
    own, owner = clients.indices, np.repeat(np.arange(len(clients)), clients.sizes)
    kinds = images.domain * (images.y.max(initial=0) + 1) + images.y
    order = numpy_generator(seed, use="validation groups").permutation(int(group.max(initial=-1)) + 1)
    held = whole_groups(group[own], order.tolist(), owner, np.rint(fraction * clients.sizes), [owner, kinds[own]])
    if not held.any():
        raise UserError(
            f"evaluation.validation: {fraction:g} of a client's training examples holds no whole group; hold out a "
            "larger part, or deal them to fewer clients"
        )
    m = np.bincount(owner[held], minlength=len(clients))
    out = [np.sort(part) for part in np.split(own[held], np.cumsum(m)[:-1])]
    return (
        Clients(clients.domains, clients.sizes - m, own[~held]),
        Clients(clients.domains, m, np.concatenate(out)),
    )


def _lone(images: Images | Texts) -> np.ndarray:
    """(n,) bool: which training images are the only one of their class in their domain."""
    _, which, counts = np.unique(
        images.domain * (images.y.max(initial=0) + 1) + images.y, return_inverse=True, return_counts=True
    )
    lone: np.ndarray = counts[which] == 1
    return lone


def _validation_of(images: Images | Texts, client: Client, m: int, seed: int, lone: np.ndarray) -> np.ndarray:
    """(m,) int64, in order: a client's validation images, none of which is a lone one."""
    draw = numpy_generator(seed, client=client.id, use="validation images")
    own = np.sort(client.indices)
    return stratified(images, own[~lone[own]], m, draw)
