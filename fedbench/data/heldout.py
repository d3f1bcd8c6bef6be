"""Training images that no client has: the server's own, drawn before the partition deals out the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedbench.errors import UserError
from fedbench.seeding import numpy_generator
from fedbench.types import Client, Images

Partition = Callable[[np.ndarray, np.ndarray, int, np.random.Generator], list[Client]]


def proxy_of(images: Images, how: Mapping[str, Any] | None, seed: int) -> np.ndarray:
    """(m,) int64, in order: the positions of the server's images in the training split; none without `data.proxy`.

    how: `{images: m}` or `{fraction: p}`, which is rounded and at least one. Raises UserError where nothing would be
    left for clients.
    """
    if not how:
        return np.arange(0)
    n = len(images)
    m = how["images"] if "images" in how else max(1, round(how["fraction"] * n))
    if m >= n:
        raise UserError(f"data.proxy: {m} of the {n} training images; clients need at least one of them")
    return stratified(images, np.arange(n), m, numpy_generator(seed, use="proxy images"))


def stratified(images: Images, among: np.ndarray, m: int, draw: np.random.Generator) -> np.ndarray:
    """(m,) int64, in order: m of the positions `among`, of each class of each domain as large a part as of all.

    Numbers are rounded by the largest remainders, equal ones by chance.
    """
    y, domain = images.y[among], images.domain[among]
    _, which, sizes = np.unique(domain * (y.max() + 1) + y, return_inverse=True, return_counts=True)
    counts, left = np.divmod(m * sizes, len(among))
    order = draw.permutation(len(sizes))
    largest = order[np.argsort(-left[order], kind="stable")]
    counts[largest[: m - counts.sum()]] += 1
    groups = np.split(among[np.argsort(which, kind="stable")], np.cumsum(sizes)[:-1])
    return np.sort(np.concatenate([draw.choice(own, k, replace=False) for own, k in zip(groups, counts, strict=True)]))


def dealt(partition: Partition, images: Images, num_domains: int, seed: int, held_out: np.ndarray) -> list[Client]:
    """The clients, and which of the images that are not held out each has, by its position in the training split."""
    draw = numpy_generator(seed, use="partition")
    if not len(held_out):
        return partition(images.y, images.domain, num_domains, draw)
    rest = np.setdiff1d(np.arange(len(images)), held_out)
    clients = partition(images.y[rest], images.domain[rest], num_domains, draw)
    return [replace(client, indices=rest[client.indices]) for client in clients]
