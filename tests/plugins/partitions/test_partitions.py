"""The partitions: who gets which images."""

from __future__ import annotations

import numpy as np
import pytest
from dealt import check, flowers, labels, same, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.types import MIXED
from fedbench_plugins import partitions
from fedbench_plugins.partitions import by_domain, dirichlet, iid, pathological


@settings(max_examples=40, deadline=None)
@given(shape=shapes, clients_per_domain=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_by_domain_gives_every_image_once_and_evenly(shape, clients_per_domain, seed):
    y, domain = labels(**shape)
    deal = by_domain(clients_per_domain=clients_per_domain)
    clients = deal(y, domain, shape["num_domains"], np.random.default_rng(seed))
    check(clients, y, domain, shape["num_domains"], clients_per_domain)
    sizes = [len(client) for client in clients]
    assert max(sizes) - min(sizes) <= 1
    assert same(clients, deal(y, domain, shape["num_domains"], np.random.default_rng(seed)))


@given(shape=shapes, n=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_iid_gives_every_image_once_and_evenly_whatever_its_domain(shape, n, seed):
    y, domain = labels(**shape)
    deal = iid(clients=n)
    clients = deal(y, domain, shape["num_domains"], np.random.default_rng(seed))
    assert [client.id for client in clients] == list(range(n))
    assert np.array_equal(np.sort(np.concatenate([client.indices for client in clients])), np.arange(len(y)))
    sizes = [len(client) for client in clients]
    assert max(sizes) - min(sizes) <= 1
    for client in clients:
        assert client.domain == (0 if shape["num_domains"] == 1 else MIXED)
        assert (np.diff(client.indices) > 0).all()
    assert same(clients, deal(y, domain, shape["num_domains"], np.random.default_rng(seed)))


def test_iid_clients_have_the_classes_of_the_whole():
    """100 images a class over five clients: each within four standard deviations of 20."""
    y, domain = labels(2, 50, 6)
    for client in iid(clients=5)(y, domain, 2, np.random.default_rng(0)):
        assert client.domain == MIXED and (abs(np.bincount(y[client.indices]) - 20) < 16).all()


@given(shape=shapes, n=st.integers(1, 8), c=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_pathological_gives_every_image_once_and_each_client_that_many_classes(shape, n, c, seed):
    y, domain = labels(**shape)
    deal = pathological(classes_per_client=c, clients_per_domain=n)
    if not c <= shape["classes"] <= n * c:
        with pytest.raises(UserError, match="is above the|would be nobody's"):
            deal(y, domain, shape["num_domains"], np.random.default_rng(seed))
        return
    clients = deal(y, domain, shape["num_domains"], np.random.default_rng(seed))
    check(clients, y, domain, shape["num_domains"], n)
    assert all(len(set(y[client.indices])) == c for client in clients)
    for d in range(shape["num_domains"]):
        held = [[np.sum(y[client.indices] == k) for client in clients if client.domain == d] for k in set(y)]
        takers = [sum(count > 0 for count in counts) for counts in held]
        assert max(takers) - min(takers) <= 1
        assert all(max(counts) - min(filter(None, counts)) <= 1 for counts in held)
    assert same(clients, deal(y, domain, shape["num_domains"], np.random.default_rng(seed)))


def test_by_domain_default_is_one_client_per_domain_and_draws_nothing():
    y, domain = labels(3, 5, 2)
    generator = np.random.default_rng(0)
    clients = by_domain()(y, domain, 3, generator)
    assert [client.indices.tolist() for client in clients] == [np.flatnonzero(domain == d).tolist() for d in range(3)]
    assert generator.random() == np.random.default_rng(0).random()


@pytest.mark.parametrize("split", [by_domain(2), dirichlet(clients_per_domain=2, min_examples=1), pathological(2, 2)])
def test_a_domain_that_nobody_trains_on_has_no_client(split):
    y, domain = labels(4, 5, 2)
    trained = np.isin(domain, [1, 3])
    clients = split(y[trained], domain[trained], 4, np.random.default_rng(0))
    assert [(client.id, client.domain) for client in clients] == [(0, 1), (1, 1), (2, 3), (3, 3)]
    assert all((domain[trained][client.indices] == client.domain).all() for client in clients)


def test_generator_matters():
    y, domain = labels(2, 20, 4)
    for split in (by_domain(clients_per_domain=2), dirichlet(clients_per_domain=2)):
        assert not same(split(y, domain, 2, np.random.default_rng(0)), split(y, domain, 2, np.random.default_rng(1)))


def test_impossible_minimum_is_refused_with_numbers():
    y, domain = labels(2, 5, 4)
    generator = np.random.default_rng(0)
    with pytest.raises(UserError, match="domain 0: 20 training examples; 3 clients with min_examples 10 need 30"):
        dirichlet(0.5, 3)(y, domain, 2, generator)
    with pytest.raises(
        UserError, match=r"domain 0: in 1,000 draws .* 20 training examples, .* never had more than \d+ "
    ):
        dirichlet(1e-6, 4, min_examples=5)(*labels(1, 10, 2), 1, generator)
    with pytest.raises(UserError, match="domain 1 has 20 training examples for 21 clients"):
        by_domain(21)(np.zeros(41), np.repeat([0, 1], [21, 20]), 2, generator)
    with pytest.raises(UserError, match="iid: 41 training examples for 42 clients"):
        iid(42)(np.zeros(41), np.repeat([0, 1], [21, 20]), 2, generator)


def test_impossible_classes_are_refused_with_numbers():
    y, domain = labels(1, 2, 10)
    generator = np.random.default_rng(0)
    with pytest.raises(UserError, match="domain 0: classes_per_client 11 is above the 10 classes there are"):
        pathological(11, 5)(y, domain, 1, generator)
    told = "3 clients of 2 classes cover 6 of 10 classes, .* take at least 5 clients_per_domain or 4 classes_per_client"
    with pytest.raises(UserError, match=told):
        pathological(2, 3)(y, domain, 1, generator)
    with pytest.raises(UserError, match="a class has 2 training examples, fewer than its 3 clients"):
        pathological(2, 15)(y, domain, 1, generator)


def test_a_domain_that_lacks_classes_gives_its_clients_all_that_it_has():
    """As of a hospital that never saw most diseases."""
    y, domain = labels(2, 12, 4)
    keep = (domain == 0) | (y == 2)
    for split in (pathological(3, 2), dirichlet(1.0, 2, min_examples=1), by_domain(2), iid(4)):
        clients = split(y[keep], domain[keep], 2, np.random.default_rng(0))
        assert sorted(i for client in clients for i in client.indices) == list(range(keep.sum()))
    clients = pathological(3, 2)(y[keep], domain[keep], 2, np.random.default_rng(0))
    assert [len(set(y[keep][client.indices])) for client in clients] == [3, 3, 1, 1]
    whole = pathological(3, 2)(y, domain, 2, np.random.default_rng(0))
    kept = np.flatnonzero(keep)
    assert [kept[client.indices].tolist() for client in clients][:2] == [client.indices.tolist() for client in whole][
        :2
    ]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (by_domain, {"clients_per_domain": 0}, "clients_per_domain: expected a whole number of at least 1, got 0"),
        (dirichlet, {"clients_per_domain": 0}, "clients_per_domain: expected a whole number of at least 1, got 0"),
        (dirichlet, {"alpha": 0}, "alpha: expected a number above 0, got 0"),
        (dirichlet, {"alpha": float("nan")}, "alpha: expected a number above 0, got NaN"),
        (dirichlet, {"alpha": float("inf")}, "alpha: expected a number above 0, got Infinity"),
        (dirichlet, {"min_examples": 0}, "min_examples: expected a whole number of at least 1, got 0"),
        (iid, {"clients": 0}, "clients: expected a whole number of at least 1, got 0"),
        (
            pathological,
            {"classes_per_client": 0},
            "classes_per_client: expected a whole number of at least 1",
        ),
        (
            pathological,
            {"clients_per_domain": 0},
            "clients_per_domain: expected a whole number of at least 1, got 0",
        ),
    ],
)
def test_wrong_options_are_user_errors(make, options, message):
    with pytest.raises(UserError, match=message):
        make(**options)


def test_partitions_register_under_their_own_names():
    seen = {}
    partitions.fedbench_register_partitions(lambda name, make: seen.update({name: make}))
    assert seen == {"by_domain": by_domain, "dirichlet": dirichlet, "iid": iid, "pathological": pathological}


@pytest.mark.parametrize("n", [1, 3, 7, 20])
def test_iid_sizes_are_those_of_flwr_datasets(n):
    """Theirs are cut from the images as they come, ours from a random order of them."""
    from flwr_datasets.partitioner import IidPartitioner

    y, domain = labels(1, 10, 5)
    ours = iid(clients=n)(y, domain, 1, np.random.default_rng(0))
    assert [len(client) for client in ours] == [len(part) for part in flowers(IidPartitioner(n), y)]


@pytest.mark.parametrize(("n", "num_classes", "c"), [(50, 6, 2), (7, 6, 4), (40, 10, 4), (9, 5, 5), (11, 7, 1)])
def test_classes_of_many_clients_are_those_drawn_one_by_one(n, num_classes, c, monkeypatch):
    monkeypatch.setattr(partitions, "TOGETHER", 13)
    draw = np.random.default_rng(n)
    takers, expected = np.zeros(num_classes, dtype=np.int64), np.zeros((n, num_classes), dtype=bool)
    for client in range(n):
        chosen = np.lexsort((draw.random(num_classes), takers))[:c]
        expected[client, chosen] = True
        takers[chosen] += 1
    assert np.array_equal(
        expected, partitions.classes(n=n, num_classes=num_classes, c=c, generator=np.random.default_rng(n))
    )


@pytest.mark.parametrize(("n", "c"), [(10, 2), (10, 5), (20, 3)])
def test_pathological_counts_are_those_of_flwr_datasets(n, c):
    """With the classes that flwr-datasets' `deterministic` mode gives to the clients, every client has as many images
    of each class; with our own random ones, the same numbers come out in another order. Their `random` mode lets
    chance alone decide who has a class, and loses the images of one that nobody has."""
    from flwr_datasets.partitioner import PathologicalPartitioner

    y, domain = labels(1, 27, 10)
    theirs = flowers(PathologicalPartitioner(n, "y", c, class_assignment_mode="deterministic"), y)
    counts = np.array([np.bincount(y[part], minlength=10) for part in theirs])
    owner = partitions.divided(y, counts > 0, np.random.default_rng(0))
    assert np.array_equal(counts, [np.bincount(y[owner == client], minlength=10) for client in range(n)])
    own = pathological(c, n)(y, domain, 1, np.random.default_rng(0))
    ours = np.array([np.bincount(y[client.indices], minlength=10) for client in own])
    assert ((ours > 0).sum(1) == (counts > 0).sum(1)).all()
    assert sorted(np.sort(ours.T).tolist()) == sorted(np.sort(counts.T).tolist())
