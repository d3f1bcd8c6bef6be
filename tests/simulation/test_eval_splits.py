"""Which test images are scored together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.simulation.federated_data import of_clients, of_domains, of_validation
from fedbench.types import GLOBAL, MIXED, Client, Clients, Dataset, Images

DATA = Dataset(("sun", "rain"), ("a", "b", "c"), "f", lambda: None)


def images(*kinds):
    """kinds: (domain, class) of each image."""
    domain, y = np.array(kinds, dtype=np.int64).reshape(-1, 2).T
    return Images(np.zeros((len(y), 3, 1, 1), dtype=np.uint8), y, domain)


def dealt(train, test, clients, seed=0):
    return of_clients(DATA, train, test, Clients.of(clients), np.random.default_rng(seed))


def test_domains_have_their_own_images():
    shares = of_domains(DATA, images((1, 0), (0, 0), (1, 2)))
    assert [(s.domain, s.indices.tolist(), s.client) for s in shares] == [
        ("sun", [1], GLOBAL),
        ("rain", [0, 2], GLOBAL),
    ]


def test_too_many_clients_are_not_validated_one_by_one():
    some = Clients(np.zeros(100_002, dtype=np.int64), np.arange(100_002) > 0, np.zeros(100_001, dtype=np.int64))
    with pytest.raises(
        UserError, match="100,001 clients hold out validation examples, and at most 100,000 are evaluated"
    ):
        of_validation(DATA, images((0, 0)), some, by_client=True)
    (share,) = of_validation(DATA, images((0, 0)), some, by_client=False)
    assert len(share.indices) == 100_001 and of_validation(DATA, images((0, 0)), None, True) == []


def test_clients_get_test_images_in_proportion_to_their_training_images():
    """Client 0 has 3 of 4 images of (sun, a), client 1 the other and all of (sun, b); nobody has (sun, c) or rain."""
    train = images(*[(0, 0)] * 4, *[(0, 1)] * 2)
    test = images(*[(0, 0)] * 8, *[(0, 1)] * 5, *[(0, 2)] * 5, *[(1, 0)] * 5)
    shares = dealt(train, test, [Client(0, 0, np.arange(3)), Client(1, 0, np.arange(3, 6))])
    assert [(s.domain, s.client) for s in shares] == [("sun", 0), ("sun", 1)]
    assert [np.bincount(test.y[s.indices], minlength=3).tolist() for s in shares] == [[6, 0, 0], [2, 5, 0]]
    assert all((test.domain[s.indices] == 0).all() for s in shares)


def test_a_client_of_several_domains_is_called_mixed():
    train = test = images((0, 0), (1, 0))
    (share,) = dealt(train, test, [Client(0, MIXED, np.arange(2))])
    assert (share.domain, share.indices.tolist()) == ("mixed", [0, 1])


def test_a_client_without_test_images_is_left_out():
    train, test = images((0, 0), (0, 1)), images((0, 1))
    (share,) = dealt(train, test, [Client(0, 0, np.array([0])), Client(1, 0, np.array([1]))])
    assert share.client == 1
    with pytest.raises(UserError, match="no test image is of a domain and class that a client trains on"):
        dealt(train, images((1, 1)), [Client(0, 0, np.array([0, 1]))])


def test_of_few_test_images_no_client_gets_more_often_than_another():
    """Ten equal clients and one test image of each of 60 kinds: chance alone says who gets it."""
    data = Dataset(("sun",), tuple(f"c{c}" for c in range(60)), "f", lambda: None)
    train, test = images(*[(0, c) for c in range(60)] * 10), images(*[(0, c) for c in range(60)])
    clients = [Client(i, 0, np.arange(60 * i, 60 * i + 60)) for i in range(10)]
    shares = of_clients(data, train, test, Clients.of(clients), np.random.default_rng(0))
    assert len(shares) == 10 and max(len(share.indices) for share in shares) <= 15  # of 6 expected


kinds = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=40)


@given(train=kinds, test=kinds, owners=st.data(), seed=st.integers(0, 9))
def test_every_test_image_goes_to_one_client_if_any_has_its_kind(train, test, owners, seed):
    n = owners.draw(st.integers(1, 5))
    owner = np.array(owners.draw(st.lists(st.integers(-1, n - 1), min_size=len(train), max_size=len(train))))
    clients = [Client(i, MIXED, np.flatnonzero(owner == i)) for i in range(n)]
    covered = {kind for kind, whose in zip(train, owner, strict=True) if whose >= 0}
    wanted = [i for i, kind in enumerate(test) if kind in covered]
    if not wanted:
        with pytest.raises(UserError):
            dealt(images(*train), images(*test), clients, seed)
        return
    shares = dealt(images(*train), images(*test), clients, seed)
    assert sorted(i for share in shares for i in share.indices.tolist()) == wanted
    for share in shares:
        assert len(share.indices) and (np.diff(share.indices) > 0).all()
        for kind in set(test):
            own, all_of = ([train[i] for i in np.flatnonzero(owner == w)].count(kind) for w in (share.client, -1))
            total = train.count(kind) - all_of
            got = [test[i] for i in share.indices].count(kind)
            assert abs(got - (test.count(kind) * own / total if total else 0)) <= 1
    again = dealt(images(*train), images(*test), clients, seed)
    assert all(np.array_equal(a.indices, b.indices) for a, b in zip(shares, again, strict=True))
