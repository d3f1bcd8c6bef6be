"""Which client has which device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.devices.table import device_of
from fedbench.errors import UserError
from fedbench.seeding import numpy_generator
from fedbench.types import MIXED, Device
from fedbench.words import counted


def devices_of(given: Mapping[str, Any], domains: Sequence[int], seed: int) -> list[Device]:
    """The device of every registered client.

    given: the `devices` of a configuration · domains: of each client. Shares become whole clients by largest
    remainders, the earlier device first where they are equal, and the seed draws who has which. Raises UserError.
    """
    known = {name: device_of(name, numbers) for name, numbers in given["known"].items()}
    return [known[name] for name in _names(given, domains, seed)]


def server_of(given: Mapping[str, Any]) -> Device:
    """What the server computes with."""
    return device_of(given["server"], given["known"][given["server"]])


def _names(given: Mapping[str, Any], domains: Sequence[int], seed: int) -> list[str]:
    N = len(domains)
    if "shares" in given:
        names = [name for name, many in _whole(given["shares"], N).items() for _ in range(many)]
        return [names[place] for place in numpy_generator(seed, use="devices").permutation(N)]
    if "by_client" in given:
        return [_at(given["by_client"], client, N) for client in range(N)]
    if MIXED in domains:
        client = list(domains).index(MIXED)
        raise UserError(
            f"devices by_domain: client {client} has images of several domains; give each client a device, "
            "{by_client: [...]}, or draw them, {device: share}"
        )
    return [_at(given["by_domain"], domain, N) for domain in domains]


def _at(names: Sequence[str], place: int, N: int) -> str:
    if place >= len(names):
        told = f"{counted(len(names), 'value')} for {counted(N, 'client')}"
        raise UserError(f"devices: {told}; give one for each")
    return names[place]


def _whole(shares: Mapping[str, float], N: int) -> dict[str, int]:
    """How many of N clients have each device."""
    total = sum(shares.values())
    exact = {name: N * share / total for name, share in shares.items()}
    whole = {name: int(number + 1e-9) for name, number in exact.items()}
    by_remainder = sorted(shares, key=lambda name: whole[name] - exact[name])
    for name in by_remainder[: N - sum(whole.values())]:
        whole[name] += 1
    return whole
