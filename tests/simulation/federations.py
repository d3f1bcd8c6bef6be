"""A federation of a few clients with numbered images, for tests to look at."""

import numpy as np

from fedbench.simulation.batches import Pixels
from fedbench.simulation.federation import Federation
from fedbench.types import Client, Images

TRAIN = {"rounds": 3, "local_epochs": 2, "max_steps": None, "batch_size": 4}


def federation(
    sizes=(10, 4),
    domains=None,
    seed=0,
    capacities=None,
    participation=None,
    faults=None,
    ranks=None,
    widths=None,
    **train,
):
    n = sum(sizes)
    images = Images(
        np.arange(n, dtype=np.uint8).repeat(3 * 4).reshape(n, 3, 2, 2), np.arange(n), np.zeros(n, dtype=np.int64)
    )
    ends = np.cumsum((0, *sizes))
    domains = domains or range(len(sizes))
    clients = [Client(i, d, np.arange(ends[i], ends[i + 1])) for i, d in zip(range(len(sizes)), domains, strict=True)]
    config = {
        "seed": seed,
        "train": {**TRAIN, **train},
        "capacities": capacities or {"by_client": [3] * len(sizes)},
        "participation": participation or {"all": True},
        **({"faults": faults} if faults else {}),
        **({"ranks": ranks} if ranks else {}),
        **({"widths": widths} if widths else {}),
    }
    return Federation(config, clients, 12, Pixels(images, (0.0,) * 3, (1.0,) * 3, "cpu"))
