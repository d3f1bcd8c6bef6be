"""Every random draw of the project comes from here, so that no result depends on the order in which things run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    import torch


def seed_of(seed: int, round: int = -1, client: int = -1, use: str = "") -> int:
    """The 63-bit seed of one draw: a function of the run's seed, the round, the client and what the draw is for.

    What belongs to no round or no client is given -1.
    """
    digest = hashlib.sha256(f"{seed}/{round}/{client}/{use}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(
    seed: int, round: int = -1, client: int = -1, use: str = "", device: torch.device | str = "cpu"
) -> torch.Generator:
    """A fresh generator for one draw; kinds of devices draw different numbers from one seed."""
    import torch

    return torch.Generator(device).manual_seed(seed_of(seed, round, client, use))


def numpy_generator(seed: int, round: int = -1, client: int = -1, use: str = "") -> numpy.random.Generator:
    """The same for draws over indices and labels, which need no torch."""
    import numpy

    return numpy.random.Generator(numpy.random.PCG64(seed_of(seed, round, client, use)))


def permuted(index: int, length: int) -> int:
    """Where a fixed pseudo-random permutation of range(length) puts an index; no list is kept of it.

    A Feistel network of four rounds over twice as many bits as half of the length has. A number that it takes beyond
    the length is put through it again until it is not.
    """
    half = max(1, ((length - 1).bit_length() + 1) // 2)
    while True:
        left, right = divmod(index, 1 << half)
        for turn in range(4):
            digest = hashlib.shake_256(f"{length:x}/{turn}/{right:x}".encode()).digest(half // 8 + 1)
            left, right = right, left ^ int.from_bytes(digest, "little") % (1 << half)
        index = left << half | right
        if index < length:
            return index


@contextmanager
def global_generator(seed: int, use: str) -> Iterator[None]:
    """Within, torch's own generator stands at this seed, for code that knows no other; afterwards where it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, use=use))
        yield
