"""The partitions `by_domain` and `dirichlet`: who gets which images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench_plugins import by_domain, dirichlet


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


@settings(max_examples=40, deadline=None)
@given(shape=shapes, clients_per_domain=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_by_domain_gives_every_image_once_and_evenly(shape, clients_per_domain, seed):
    y, domain = labels(**shape)
    deal = by_domain.make(clients_per_domain=clients_per_domain)
    clients = deal(y, domain, shape["num_domains"], np.random.default_rng(seed))
    check(clients, y, domain, shape["num_domains"], clients_per_domain)
    sizes = [len(client) for client in clients]
    assert max(sizes) - min(sizes) <= 1
    assert same(clients, deal(y, domain, shape["num_domains"], np.random.default_rng(seed)))


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
    split = dirichlet.make(alpha, clients_per_domain, balanced, min_examples=1)
    try:
        clients = split(y, domain, shape["num_domains"], np.random.default_rng(seed))
    except UserError as error:  # few images, many clients and a small alpha: said with numbers
        assert "1,000 draws" in str(error)
        return
    check(clients, y, domain, shape["num_domains"], clients_per_domain)
    assert min(len(client) for client in clients) >= 1
    assert same(clients, split(y, domain, shape["num_domains"], np.random.default_rng(seed)))


def test_by_domain_default_is_one_client_per_domain_and_draws_nothing():
    y, domain = labels(3, 5, 2)
    generator = np.random.default_rng(0)
    clients = by_domain.make()(y, domain, 3, generator)
    assert [client.indices.tolist() for client in clients] == [np.flatnonzero(domain == d).tolist() for d in range(3)]
    assert generator.random() == np.random.default_rng(0).random()


def test_generator_matters():
    y, domain = labels(2, 20, 4)
    for split in (by_domain.make(clients_per_domain=2), dirichlet.make(clients_per_domain=2)):
        assert not same(split(y, domain, 2, np.random.default_rng(0)), split(y, domain, 2, np.random.default_rng(1)))


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
    clients = dirichlet.make(0.5, 5)(y, domain, 1, np.random.default_rng(seed))
    expected = reference_draw(y, 0.5, 5, 10, np.random.default_rng(seed))
    assert [client.indices.tolist() for client in clients] == [sorted(own) for own in expected]


def test_balanced_client_overshoots_its_share_by_one_class_at_most():
    y, domain = labels(1, 40, 10)
    for seed in range(20):
        clients = dirichlet.make(0.1, 4, balanced=True)(y, domain, 1, np.random.default_rng(seed))
        assert max(len(client) for client in clients) < 100 + 40


def test_plain_draw_is_more_uneven_than_the_balanced_one():
    y, domain = labels(1, 40, 10)

    def largest(balanced: bool) -> float:
        split = dirichlet.make(0.1, 4, balanced)
        return np.mean([max(map(len, split(y, domain, 1, np.random.default_rng(s)))) for s in range(20)])

    assert largest(False) > largest(True)


def test_small_alpha_skews_labels_and_a_large_one_does_not():
    y, domain = labels(1, 50, 6)

    def skew(alpha: float) -> float:
        clients = dirichlet.make(alpha, 3)(y, domain, 1, np.random.default_rng(0))
        return np.mean([np.bincount(y[client.indices], minlength=6).max() / len(client) for client in clients])

    assert skew(1000) < 0.2 < 0.3 < skew(0.1)


def test_vanishing_alpha_still_gives_every_image_away():
    y, domain = labels(1, 20, 12)
    parts = dirichlet.draw(y, 1e-9, 4, True, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(y)))


def test_each_client_has_min_examples():
    y, domain = labels(2, 20, 5)
    for seed in range(10):
        clients = dirichlet.make(0.3, 4, min_examples=15)(y, domain, 2, np.random.default_rng(seed))
        assert min(len(client) for client in clients) >= 15


def test_impossible_minimum_is_refused_with_numbers():
    y, domain = labels(2, 5, 4)
    generator = np.random.default_rng(0)
    with pytest.raises(UserError, match="domain 0: 20 training images; 3 clients with min_examples 10 need 30"):
        dirichlet.make(0.5, 3)(y, domain, 2, generator)
    with pytest.raises(UserError, match=r"domain 0: in 1,000 draws .* 20 training images, .* never had more than \d+ "):
        dirichlet.make(1e-6, 4, min_examples=5)(*labels(1, 10, 2), 1, generator)
    with pytest.raises(UserError, match="domain 1 has 20 training images for 21 clients"):
        by_domain.make(21)(np.zeros(41), np.repeat([0, 1], [21, 20]), 2, generator)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (by_domain.make, {"clients_per_domain": 0}, "clients_per_domain must be at least 1, not 0"),
        (dirichlet.make, {"clients_per_domain": 0}, "clients_per_domain must be at least 1, not 0"),
        (dirichlet.make, {"alpha": 0}, "alpha must be a finite number above 0, not 0"),
        (dirichlet.make, {"alpha": float("nan")}, "alpha must be a finite number above 0, not nan"),
        (dirichlet.make, {"alpha": float("inf")}, "alpha must be a finite number above 0, not inf"),
        (dirichlet.make, {"min_examples": 0}, "min_examples must be at least 1, not 0"),
    ],
)
def test_wrong_options_are_user_errors(make, options, message):
    with pytest.raises(UserError, match=message):
        make(**options)


@pytest.mark.parametrize("plugin", [by_domain, dirichlet])
def test_plugin_registers_under_its_file_name(plugin):
    seen = {}
    plugin.fedbench_register_partitions(lambda name, make: seen.update({name: make}))
    assert seen == {plugin.__name__.split(".")[-1]: plugin.make}
