"""What no cell can be computed with: images, labels and clients that are not what they are said to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbench.types import Client, Dataset, Images

LOOKED_AT = 256  # float images whose range is looked at; a data set may be larger than memory


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


def fault_of_clients(clients: Sequence[Client], n: int) -> str:
    """What is wrong with the clients who share out n images, in a sentence; "" where nothing is."""
    if not isinstance(clients, list | tuple) or not all(isinstance(client, Client) for client in clients):
        return f"a partition returns a list of fedbench.types.Client, not {of_what(clients)}"
    if not clients:
        return "the partition makes no client at all"
    if [client.id for client in clients] != list(range(len(clients))):
        return "client ids must be 0, 1, 2, ... in order"
    for client in clients:
        own = client.indices
        if not (isinstance(own, np.ndarray) and own.ndim == 1 and own.dtype.kind == "i"):
            return f"the indices of client {client.id} must be positions in y, int64 (n,), not {of_what(own)}"
    owned = np.concatenate([client.indices for client in clients])
    if len(owned) and (owned.min() < 0 or owned.max() >= n):
        return f"indices must be positions in y, from 0 to {n - 1}, not {owned.min()} to {owned.max()}"
    if len(owned) and np.bincount(owned).max() > 1:
        return f"image {int(np.bincount(owned).argmax())} belongs to two clients; each has one owner at most"
    return ""


def of_what(value: Any) -> str:
    """A value in a few words."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
    return type(value).__name__
