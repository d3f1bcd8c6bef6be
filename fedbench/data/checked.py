"""What no cell can be computed with: images, labels and clients that are not what they are said to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbench.types import Client, Clients, Dataset, Images

LOOKED_AT = 256  # float images whose range is looked at; a data set may be larger than memory
NOBODY = "the partition makes no client at all"


def fault_of_images(images: Images, dataset: Dataset, split: str) -> str:
    """What is wrong with a split, in a sentence; "" where nothing is."""
    n, x = len(images.y), images.x
    shaped = isinstance(x, np.ndarray) and x.ndim == 4 and x.shape[:2] == (n, 3) and x.shape[2] == x.shape[3]
    if not shaped or x.dtype not in (np.uint8, np.float32):
        return f"{split}.x must be uint8 or float32 (n, 3, H, H), not {of_what(x)}"
    if x.dtype == np.float32:
        far = float(np.abs(x[:LOOKED_AT]).max()) if n else 0.0
        if not far <= 2:
            return f"{split}.x in float32 must lie in or near [0, 1], not reach {far:g}; divide by 255"
    for part, names in (("y", dataset.classes), ("domain", dataset.domains)):
        values = getattr(images, part)
        if values.shape != (n,) or values.dtype != np.int64:
            return f"{split}.{part} must be int64 ({n},), not {of_what(values)}"
        if not n or values.min() < 0 or values.max() >= len(names):
            return f"{split}.{part} must lie between 0 and {len(names) - 1}"
    return ""


def fault_of_domains(test: Images, dataset: Dataset) -> str:
    """A domain that could not be scored, for want of test images, in a sentence; "" where there is none."""
    counts = np.bincount(test.domain, minlength=len(dataset.domains))
    if counts.all():
        return ""
    return f"the domain {dataset.domains[int(counts.argmin())]!r} has no test image, and so no score"


def fault_of_clients(clients: Sequence[Client], n: int) -> str:
    """What is wrong with the clients who share out n images, in a sentence; "" where nothing is."""
    if fault := _fault_of_arrays(clients) if isinstance(clients, Clients) else _fault_of_list(clients):
        return fault
    owned = clients.indices if isinstance(clients, Clients) else np.concatenate([one.indices for one in clients])
    if not len(owned):
        return ""
    if owned.min() < 0 or owned.max() >= n:
        return f"indices must be positions in y, from 0 to {n - 1}, not {owned.min()} to {owned.max()}"
    owners = np.bincount(owned)
    if owners.max() > 1:
        return f"image {int(owners.argmax())} belongs to two clients; each has one owner at most"
    return ""


def _fault_of_list(clients: Sequence[Client]) -> str:
    if not isinstance(clients, list | tuple) or not all(isinstance(client, Client) for client in clients):
        return f"a partition returns a list of fedbench.types.Client, not {of_what(clients)}"
    if not clients:
        return NOBODY
    if [client.id for client in clients] != list(range(len(clients))):
        return "client ids must be 0, 1, 2, ... in order"
    for client in clients:
        if not _are_positions(own := client.indices):
            return f"the indices of client {client.id} must be positions in y, int64 (n,), not {of_what(own)}"
    return ""


def _fault_of_arrays(clients: Clients) -> str:
    if not len(clients):
        return NOBODY
    for what in ("domains", "indices"):
        if not _are_positions(getattr(clients, what)):
            return f"the {what} of all clients must be int64 (n,), not {of_what(getattr(clients, what))}"
    if clients.sizes.min() < 0 or clients.starts[-1] != len(clients.indices):
        return f"the sizes of all clients must add up to their {len(clients.indices)} images, each 0 or more"
    return ""


def _are_positions(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "i"


def of_what(value: Any) -> str:
    """A value in a few words."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
    return type(value).__name__
