"""Who has which device."""

from __future__ import annotations

import pytest

from fedbench.devices.assignment import devices_of, server_of
from fedbench.devices.table import SHIPPED, numbers_of
from fedbench.errors import UserError

KNOWN = {name: numbers_of(SHIPPED[name]) for name in ("workstation", "laptop", "phone_low", "server_gpu")}


def names(given, domains, seed=0) -> list[str]:
    return [one.name for one in devices_of({"server": "server_gpu", "known": KNOWN, **given}, domains, seed)]


def test_clients_and_domains_have_what_the_list_says():
    assert names({"by_client": ["laptop", "workstation"]}, [0, 0]) == ["laptop", "workstation"]
    assert names({"by_domain": ["laptop", "workstation"]}, [1, 0, 1]) == ["workstation", "laptop", "workstation"]


def test_shares_become_whole_clients_and_the_seed_draws_who_has_them():
    given = {"shares": {"workstation": 1.0, "laptop": 3.0, "phone_low": 6.0}}
    drawn = names(given, [0] * 20)
    assert [drawn.count(name) for name in given["shares"]] == [2, 6, 12]
    assert drawn == names(given, [0] * 20) != names(given, [0] * 20, seed=1)
    # 7 clients: 0.7, 2.1 and 4.2 of them; the largest remainder is that of the first
    assert [names(given, [0] * 7).count(name) for name in given["shares"]] == [1, 2, 4]


def test_a_short_list_and_mixed_domains_are_refused():
    with pytest.raises(UserError, match="devices: 1 value for 2 clients; give one for each"):
        names({"by_client": ["laptop"]}, [0, 0])
    with pytest.raises(UserError, match="devices by_domain: client 1 has examples of several domains"):
        names({"by_domain": ["laptop"]}, [0, -1])


def test_a_device_keeps_its_numbers_but_not_its_source():
    (one,) = devices_of({"known": KNOWN, "by_client": ["laptop"]}, [0], 0)
    assert (one.memory, one.flops, one.source) == (8_000_000_000, SHIPPED["laptop"].flops, "")
    assert server_of({"known": KNOWN, "server": "server_gpu"}).name == "server_gpu"
