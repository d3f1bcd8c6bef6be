"""The server's own images: so many, of every class and domain, and nobody else's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.data.heldout import dealt, proxy_of, without_validation
from fedbench.errors import UserError
from fedbench.types import Client, Clients, Images, Texts


def images_of(domain, y):
    n = len(y)
    return Images(np.zeros((n, 3, 1, 1), np.uint8), np.array(y, dtype=np.int64), np.array(domain, dtype=np.int64))


def everybody(y, domain, num_domains, draw):
    """A client for each domain, its images in a random order."""
    return [Client(d, d, draw.permutation(np.flatnonzero(domain == d))) for d in range(num_domains)]


@given(groups=st.lists(st.integers(1, 9), min_size=1, max_size=8), data=st.data(), seed=st.integers(0, 99))
def test_every_class_of_every_domain_gives_its_share(groups, data, seed):
    keys = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(groups)), groups))
    images, n = images_of(keys % 3, keys // 3), len(keys)
    m = data.draw(st.integers(1, n)) if n > 1 else 1
    if m == n:
        with pytest.raises(UserError, match=f"data.proxy: {m} of the {n} training examples"):
            proxy_of(images, {"images": m}, seed)
        return
    held = proxy_of(images, {"images": m}, seed)
    assert len(held) == len(set(held)) == m and (np.diff(held) > 0).all()
    for g, size in enumerate(groups):
        assert abs((keys[held] == g).sum() - m * size / n) < 1
    assert held.tolist() == proxy_of(images, {"images": m}, seed).tolist()
    clients = dealt(everybody, images, 3, seed, held)
    assert sorted([*held, *(i for client in clients for i in client.indices)]) == list(range(n))
    assert all((images.domain[client.indices] == client.domain).all() for client in clients)


def test_a_fraction_is_rounded_and_seeds_draw_differently():
    images = images_of([0] * 40, [0, 1] * 20)
    assert [len(proxy_of(images, {"fraction": f}, 0)) for f in (0.001, 0.1, 0.5)] == [1, 4, 20]
    assert proxy_of(images, {"images": 6}, 0).tolist() != proxy_of(images, {"images": 6}, 1).tolist()
    assert not len(proxy_of(images, None, 0))
    with pytest.raises(UserError, match="data.proxy: 40 of the 40 training examples"):
        proxy_of(images, {"fraction": 0.999}, 0)


@pytest.mark.parametrize("held", [[], [3]])
def test_a_partition_that_writes_into_what_it_is_given_changes_no_label(held):
    images = images_of([0, 1] * 10, [0, 1] * 10)

    def wiping(y, domain, num_domains, draw):
        clients = everybody(y, domain, num_domains, draw)
        y[:], domain[:] = 0, 0
        return clients

    dealt(wiping, images, 2, 3, np.array(held, dtype=np.int64))
    assert images.y.tolist() == images.domain.tolist() == [0, 1] * 10


def test_with_nothing_held_out_clients_are_dealt_as_ever():
    images = images_of([0, 1] * 10, [0] * 20)
    plain = everybody(images.y, images.domain, 2, np.random.Generator(np.random.PCG64(1)))
    assert len(plain) == len(dealt(everybody, images, 2, 3, np.arange(0))) == 2
    one, other = (dealt(everybody, images, 2, 3, np.arange(0))[0].indices for _ in range(2))
    assert one.tolist() == other.tolist() and sorted(one) == list(range(0, 20, 2))


@given(sizes=st.lists(st.integers(0, 23), min_size=1, max_size=4), f=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_every_client_holds_its_part_out_by_class_and_trains_on_the_rest(sizes, f, seed):
    chance = np.random.default_rng(seed)
    n, owner = sum(sizes), np.repeat(np.arange(len(sizes)), sizes)
    images = images_of(chance.integers(0, 2, n), chance.integers(0, 3, n))
    clients = [Client(i, 0, chance.permutation(np.flatnonzero(owner == i))) for i in range(len(sizes))]
    kinds = images.domain * 3 + images.y
    common = np.bincount(kinds, minlength=6)[kinds] > 1  # no lone one is held out
    wanted = [
        max(0, min(round(f * size), size - 1, int(common[client.indices].sum())))
        for client, size in zip(clients, sizes, strict=True)
    ]
    if not any(wanted):
        with pytest.raises(UserError, match="evaluation.validation: .* less than one, even"):
            without_validation(images, Clients.of(clients), f, seed)
        return
    left, held = without_validation(images, Clients.of(clients), f, seed)
    assert [len(own) for own in held] == wanted and [one.domain for one in held] == [0] * len(sizes)
    held = [own.indices for own in held]
    for before, after, own in zip(clients, left, held, strict=True):
        assert sorted([*after.indices, *own]) == sorted(before.indices) and (np.diff(own) > 0).all()
        assert after.indices.tolist() == [i for i in before.indices if i not in own]  # in the order they were dealt in
        assert common[own].all()
        among = before.indices[common[before.indices]]
        for kind in range(6):
            all_of, some = (int((kinds[positions] == kind).sum()) for positions in (among, own))
            assert not len(among) or abs(some - len(own) * all_of / len(among)) < 1


def test_validation_images_depend_on_the_seed_and_the_client_alone():
    images = images_of([0] * 40, [0, 1] * 20)

    def held(one, other, seed=3):
        clients = Clients.of([Client(0, 0, one), Client(1, 0, other)])
        return [own.indices.tolist() for own in without_validation(images, clients, 0.25, seed)[1]]

    (one, other), some = np.arange(40).reshape(2, 20), np.arange(8)
    both, changed = held(one, other), held(some, other[::-1])
    assert both[1] == changed[1] and (images.y[both[1]] == [0, 1, 0, 1, 0]).sum() != 5
    assert both[0] != held(one, other, 4)[0] and len(changed[0]) == 2
    everybody = Clients.of([Client(0, 0, one)])
    assert without_validation(images, everybody, None, 3) == (everybody, None)


def test_texts_are_held_out_as_images_are():
    y, domain = np.arange(60) % 3, np.arange(60) // 20
    images, texts = images_of(domain, y), Texts(["text"] * 60, y, domain)
    proxies = [proxy_of(half, {"images": 9}, 0) for half in (images, texts)]
    assert proxies[0].tolist() == proxies[1].tolist() and len(proxies[0]) == 9
    dealt_out = [Clients.of(dealt(everybody, half, 3, 0, proxies[0])) for half in (images, texts)]
    held = [
        without_validation(half, clients, 0.2, 0)[1] for half, clients in zip((images, texts), dealt_out, strict=True)
    ]
    assert held[0].indices.tolist() == held[1].indices.tolist() and len(held[0].indices) == 9


def test_the_lone_image_of_a_class_in_a_domain_is_trained_on():
    """Held out for validation, no client would ever learn it; what others hold out stays what it was."""
    images = images_of([0] * 9 + [1] * 8, [0] * 8 + [1] + [0] * 4 + [1] * 4)
    clients = Clients.of([Client(0, 0, np.arange(9)), Client(1, 1, np.arange(9, 17))])
    for seed in range(20):
        kept, held = without_validation(images, clients, 0.5, seed)
        assert 8 in kept[0].indices and held.sizes.tolist() == [4, 4]
        common = images_of([0] * 9 + [1] * 8, [0] * 13 + [1] * 4)
        assert without_validation(common, clients, 0.5, seed)[1][1].indices.tolist() == held[1].indices.tolist()
    alone = Clients.of([Client(0, 0, np.array([8])), Client(1, 1, np.arange(9, 17))])
    assert without_validation(images, alone, 0.5, 0)[0][0].indices.tolist() == [8]
    few = images_of([0] * 3, [0, 1, 2])
    with pytest.raises(UserError, match="less than one"):
        without_validation(few, Clients.of([Client(0, 0, np.arange(3))]), 0.9, 0)
