"""What no cell can be computed with: images, labels and clients that are not what they are said to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from fedbench.errors import UserError
from fedbench.types import Client, Clients, Dataset, Images, Splits

LOOKED_AT = 256  # float images whose range is looked at; a data set may be larger than memory
DARK, DARKER = -0.25, 0.01  # images are normalised already if a larger share of their values than this lies below that
NOBODY = "the partition makes no client at all"


def loaded(dataset: Dataset, name: str) -> Splits:
    """What the data set of that name loads. Raises UserError where that is no pair of splits."""
    if fault := fault_of_load(dataset.load):
        raise refusal(name, fault)
    splits = dataset.load()
    if fault := fault_of_splits(splits):
        raise refusal(name, fault)
    return splits


def refusal(name: str, fault: str) -> UserError:
    """What is raised for a data set with such a fault."""
    return UserError(f"the data set {name!r} cannot be used: {fault}")


def fault_of_load(load: object) -> str:
    """What is wrong with what is to load the images, in a sentence; "" where nothing is."""
    if callable(load):
        return ""
    return f"`load` must be a function that returns Splits, not {of_what(load)}: write `load=lambda: Splits(...)`"


def fault_of_splits(splits: object) -> str:
    """What is wrong with what `load` has returned, in a sentence; "" where nothing is."""
    if not isinstance(splits, Splits):
        return f"`load` must return fedbench.types.Splits(train, test), not {of_what(splits)}"
    for split in ("train", "test"):
        if not isinstance(images := getattr(splits, split), Images):
            return f"`load` must return Splits of fedbench.types.Images, and {split} is {of_what(images)}"
    return ""


def fault_of_images(images: Images, dataset: Dataset, split: str) -> str:
    """What is wrong with a split, in a sentence; "" where nothing is."""
    n, x = len(images.y), images.x
    shaped = isinstance(x, np.ndarray) and x.ndim == 4 and x.shape[1] == 3 and x.shape[2] == x.shape[3]
    if not shaped or x.dtype not in (np.uint8, np.float32):
        return f"{split}.x must be uint8 or float32 (n, 3, H, H), not {of_what(x)}"
    if len(x) != n:
        return f"{split} has {len(x)} images but {n} labels"
    if x.dtype == np.float32 and n and (fault := _fault_of_range(x[:LOOKED_AT])):
        return f"{split}.x {fault}"
    for part, names in (("y", dataset.classes), ("domain", dataset.domains)):
        values = getattr(images, part)
        if values.shape != (n,) or values.dtype != np.int64:
            return f"{split}.{part} must be int64 ({n},), not {of_what(values)}"
        if not n or values.min() < 0 or values.max() >= len(names):
            return f"{split}.{part} must lie between 0 and {len(names) - 1}"
    return ""


def _fault_of_range(x: np.ndarray) -> str:
    """What is wrong with the values of float images, in half a sentence; "" where nothing is."""
    below = float((x < DARK).mean())
    if below > DARKER:
        fault = f"looks normalised already: {below:.0%} of its values are below {DARK:g}"
        return f"{fault}; give values in [0, 1], `data.normalize` does the rest"
    far = float(np.abs(x).max())
    return "" if far <= 2 else f"in float32 must lie in or near [0, 1], not reach {far:g}; divide by 255"


def repeated(splits: Splits) -> int:
    """How many test images are training images too, pixel for pixel."""
    test = Counter(map(_digest, splits.test.x))
    return sum(test.pop(digest, 0) for digest in map(_digest, splits.train.x))


def _digest(x: np.ndarray) -> bytes:
    return blake2b(np.ascontiguousarray(x).data, digest_size=16).digest()


def told_repeated(count: int, n: int) -> str:
    """Of n test images so many are training images too: what that is to be called."""
    return f"{count:,} of {n:,} test images are training images too, pixel for pixel"


def too_many(count: int, n: int) -> bool:
    """Whether more than a tenth of n test images were trained on, and scores are of what was learnt by heart; real data
    sets have a few."""
    return 10 * count > n


def told_untrained(train: Images, dataset: Dataset) -> str:
    """The classes that no training image has, in a sentence; "" where there is none."""
    counts = np.bincount(train.y, minlength=len(dataset.classes))
    lacking = [dataset.classes[c] for c in np.flatnonzero(counts == 0)]
    if not lacking:
        return ""
    if len(lacking) == 1:
        return f"no training image has the class {lacking[0]!r}"
    return f"{len(lacking)} of {len(counts)} classes have no training image, {lacking[0]!r} among them"


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
        return f"image {int(owners.argmax())} is dealt {owners.max():,} times; each goes to one client at most, once"
    return ""


def _fault_of_list(clients: Sequence[Client]) -> str:
    wanted = "a partition returns a list of fedbench.types.Client, not"
    if not isinstance(clients, list | tuple):
        return f"{wanted} {of_what(clients)}"
    for i, client in enumerate(clients):
        if not isinstance(client, Client):
            return f"{wanted} one whose item {i} is {of_what(client)}"
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
