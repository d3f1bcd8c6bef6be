"""What tests of partitions share: labels to deal out, what every deal keeps, and flwr-datasets' deals."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


def labels(num_domains: int, per_class: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y and domain of a training split in shuffled order."""
    domain, y = np.divmod(np.arange(num_domains * classes * per_class) // per_class, classes)
    order = np.random.default_rng(seed).permutation(len(y))
    return y[order], domain[order]


def check(clients, y, domain, num_domains: int, clients_per_domain: int) -> None:
    """Every index once, in its own domain; ids consecutive, domain by domain."""
    assert [client.id for client in clients] == list(range(num_domains * clients_per_domain))
    assert [client.domain for client in clients] == [d for d in range(num_domains) for _ in range(clients_per_domain)]
    assert np.array_equal(np.sort(np.concatenate([client.indices for client in clients])), np.arange(len(y)))
    for client in clients:
        assert (domain[client.indices] == client.domain).all()
        assert (np.diff(client.indices) > 0).all()


def same(one, other) -> bool:
    return all(np.array_equal(a.indices, b.indices) for a, b in zip(one, other, strict=True))


shapes = st.fixed_dictionaries(
    {
        "num_domains": st.integers(1, 4),
        "per_class": st.integers(8, 30),
        "classes": st.integers(1, 6),
        "seed": st.integers(0, 9),
    }
)


def flowers(partitioner, y: np.ndarray) -> list[np.ndarray]:
    """The positions in y (N,) that one of flwr-datasets' partitioners gives each client."""
    from datasets import Dataset

    partitioner.dataset = Dataset.from_dict({"y": y.tolist(), "at": list(range(len(y)))})
    return [np.array(partitioner.load_partition(i)["at"]) for i in range(partitioner.num_partitions)]
