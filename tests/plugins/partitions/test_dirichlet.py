"""plugins/partitions.py: every image once, the draw of FedRA's code, and that of flwr-datasets."""

from __future__ import annotations

import numpy as np
import pytest
from dealt import check, flowers, labels, same, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench_plugins import partitions
from fedbench_plugins.partitions import dirichlet


@settings(max_examples=60, deadline=None)
@given(
    shape=shapes,
    clients_per_domain=st.integers(1, 5),
    alpha=st.floats(0.05, 100),
    balanced=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_dirichlet_gives_every_image_once(shape, clients_per_domain, alpha, balanced, seed):
    y, domain = labels(**shape)
    split = dirichlet(alpha, clients_per_domain, balanced, min_examples=1)
    try:
        clients = split(y, domain, shape["num_domains"], np.random.default_rng(seed))
    except UserError as error:  # few images, many clients and a small alpha: said with numbers
        assert "1,000 draws" in str(error)
        return
    check(clients, y, domain, shape["num_domains"], clients_per_domain)
    assert min(len(client) for client in clients) >= 1
    assert same(clients, split(y, domain, shape["num_domains"], np.random.default_rng(seed)))


def reference_draw(y: np.ndarray, alpha: float, n: int, least: int, generator: np.random.Generator) -> list[list[int]]:
    """The usual balanced draw, written out per client as FedRA's released code and its ancestors do."""
    while True:
        held: list[list[int]] = [[] for _ in range(n)]
        for label in range(int(y.max()) + 1):
            of_label = generator.permutation(np.where(y == label)[0])
            p = generator.dirichlet([alpha] * n)
            p = np.array([share * (len(own) < len(y) / n) for share, own in zip(p, held, strict=True)])
            p = p / p.sum()
            ends = [0, *(np.cumsum(p) * len(of_label)).astype(int)[:-1], len(of_label)]
            for client in range(n):
                held[client] += of_label[ends[client] : ends[client + 1]].tolist()
        if min(map(len, held)) >= least:
            return held


@pytest.mark.parametrize("seed", range(5))
def test_balanced_draw_is_the_reference_one(seed):
    y, domain = labels(1, 30, 7, seed)
    clients = dirichlet(0.5, 5)(y, domain, 1, np.random.default_rng(seed))
    expected = reference_draw(y, 0.5, 5, 10, np.random.default_rng(seed))
    assert [client.indices.tolist() for client in clients] == [sorted(own) for own in expected]


def listed_draw(y, alpha, n, balanced, generator):
    """The draw as it was first written, with a list of arrays for each client."""
    parts = [[] for _ in range(n)]
    sizes = np.zeros(n, dtype=np.int64)
    for label in np.unique(y):
        of_label = generator.permutation(np.flatnonzero(y == label))
        p = generator.dirichlet(np.full(n, alpha))
        if balanced:
            p = p * (sizes < len(y) / n)
            p = p / p.sum()
        for client, part in enumerate(np.split(of_label, (np.cumsum(p) * len(of_label)).astype(int)[:-1])):
            parts[client].append(part)
            sizes[client] += len(part)
    return [np.sort(np.concatenate(part)) for part in parts]


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(("n", "alpha"), [(1, 0.5), (5, 0.1), (30, 0.5), (400, 10.0)])
def test_the_draw_is_to_the_image_what_it_was_at_first(n, alpha, balanced):
    for seed in range(5):
        y = labels(1, 60, 7, seed)[0]
        one = parts_of(y, alpha, n, balanced, np.random.default_rng(seed))
        two = listed_draw(y, alpha, n, balanced, np.random.default_rng(seed))
        assert [part.tolist() for part in one] == [part.tolist() for part in two]


def parts_of(y, alpha, n, balanced, generator) -> list[np.ndarray]:
    """One draw, client by client."""
    owner, sizes = partitions.draw(
        [np.flatnonzero(y == label) for label in np.unique(y)], alpha, n, balanced, generator
    )
    assert sizes.tolist() == np.bincount(owner, minlength=n).tolist()
    return [np.flatnonzero(owner == client) for client in range(n)]


def test_balanced_client_overshoots_its_share_by_one_class_at_most():
    y, domain = labels(1, 40, 10)
    for seed in range(20):
        clients = dirichlet(0.1, 4, balanced=True)(y, domain, 1, np.random.default_rng(seed))
        assert max(len(client) for client in clients) < 100 + 40


def test_plain_draw_is_more_uneven_than_the_balanced_one():
    y, domain = labels(1, 40, 10)

    def largest(balanced: bool) -> float:
        split = dirichlet(0.1, 4, balanced)
        return np.mean([max(map(len, split(y, domain, 1, np.random.default_rng(s)))) for s in range(20)])

    assert largest(False) > largest(True)


def test_small_alpha_skews_labels_and_a_large_one_does_not():
    y, domain = labels(1, 50, 6)

    def skew(alpha: float) -> float:
        clients = dirichlet(alpha, 3)(y, domain, 1, np.random.default_rng(0))
        return np.mean([np.bincount(y[client.indices], minlength=6).max() / len(client) for client in clients])

    assert skew(1000) < 0.2 < 0.3 < skew(0.1)


def test_vanishing_alpha_still_gives_every_image_away():
    y, domain = labels(1, 20, 12)
    parts = parts_of(y, 1e-9, 4, True, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(y)))


def test_where_no_draw_comes_near_ten_are_enough():
    y, domain = labels(1, 400, 6)
    with pytest.raises(UserError, match=r"dirichlet: domain 0: in 10 draws with alpha 0.5 .* smallest of 2400 clients"):
        dirichlet(0.5, 2400, min_examples=1)(y, domain, 1, np.random.default_rng(0))


def test_each_client_has_min_examples():
    y, domain = labels(2, 20, 5)
    for seed in range(10):
        clients = dirichlet(0.3, 4, min_examples=15)(y, domain, 2, np.random.default_rng(seed))
        assert min(len(client) for client in clients) >= 15


class Shares:
    """In place of a generator: known shares for every class, and no permutation."""

    def __init__(self, shares):
        self.shares = iter(shares)

    def dirichlet(self, alpha):
        return next(self.shares)

    def permutation(self, x):
        return x

    def shuffle(self, x):
        pass


@pytest.mark.parametrize("balanced", [True, False])
def test_dirichlet_cuts_are_those_of_flwr_datasets(balanced):
    """Given the same shares, the same images. In a balanced draw theirs stops a client above its even share, ours, as
    FedRA's code, at it: equal unless somebody has exactly N/n."""
    from flwr_datasets.partitioner import DirichletPartitioner

    y = labels(1, 31, 6)[0]
    for seed in range(5):
        shares = np.random.default_rng(seed).dirichlet(np.full(4, 0.7), size=6)
        partitioner = DirichletPartitioner(4, "y", 0.7, min_partition_size=0, self_balancing=balanced)
        partitioner._rng = Shares(shares)
        ours = parts_of(y, 0.7, 4, balanced, Shares(shares))
        assert [part.tolist() for part in ours] == [sorted(part.tolist()) for part in flowers(partitioner, y)]
