"""Which client has which device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from fedbench.devices.table import device_of
from fedbench.errors import UserError
from fedbench.seeding import numpy_generator
from fedbench.types import MIXED, Device
from fedbench.words import counted

T = TypeVar("T")


class Dealt(Sequence[T]):
    """What each of many clients has, where few different things are had.

    Attributes:
        kinds: the different things.
        which: (n,) int, the place of each client's among them.
    """

    def __init__(self, kinds: Sequence[T], which: np.ndarray) -> None:
        self.kinds, self.which = list(kinds), which.astype(np.min_scalar_type(max(len(kinds) - 1, 0)))

    @classmethod
    def of(cls, things: Sequence[T]) -> Dealt[T]:
        """The same things; themselves where they are dealt."""
        if isinstance(things, Dealt):
            return things
        places = {thing: place for place, thing in enumerate(dict.fromkeys(things))}
        return cls(list(places), np.array([places[thing] for thing in things]))

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, i: int) -> T: ...

    @overload
    def __getitem__(self, i: slice) -> list[T]: ...

    def __getitem__(self, i: int | slice) -> T | list[T]:
        if isinstance(i, slice):
            return [self.kinds[place] for place in self.which[i]]
        return self.kinds[self.which[i]]


def devices_of(given: Mapping[str, Any], domains: Sequence[int] | np.ndarray, seed: int) -> Dealt[Device]:
    """The device of every registered client.

    Shares become whole clients by largest remainders, the earlier device first where they are equal, and the seed draws
    who has which. Raises UserError.

    Args:
        given: the `devices` of a configuration.
        domains: of each client.
    """
    domains, N = np.asarray(domains), len(domains)
    if "shares" in given:
        whole = _whole(given["shares"], N)
        names, which = list(whole), np.repeat(np.arange(len(whole)), list(whole.values()))
        which = which[numpy_generator(seed, use="devices").permutation(N)]
    else:
        way = "by_client" if "by_client" in given else "by_domain"
        names, which = given[way], np.arange(N) if way == "by_client" else domains
        _refuse_lacking(names, which, way, N)
    known = {name: device_of(name, numbers) for name, numbers in given["known"].items()}
    devices = Dealt.of([known[name] for name in names])
    return Dealt(devices.kinds, devices.which[which])


def server_of(given: Mapping[str, Any]) -> Device:
    """What the server computes with."""
    return device_of(given["server"], given["known"][given["server"]])


def _refuse_lacking(names: Sequence[str], which: np.ndarray, way: str, N: int) -> None:
    """Raises UserError where a client has no place among the names."""
    if way == "by_domain" and (which == MIXED).any():
        raise UserError(
            f"devices by_domain: client {(which == MIXED).argmax()} has examples of several domains; give each client "
            "a device, {by_client: [...]}, or draw them, {device: share}"
        )
    if which.max(initial=0) >= len(names):
        message = f"{counted(len(names), 'value')} for {counted(N, 'client')}"
        raise UserError(f"devices: {message}; give one for each")


def _whole(shares: Mapping[str, float], N: int) -> dict[str, int]:
    """How many of N clients have each device."""
    total = sum(shares.values())
    exact = {name: N * share / total for name, share in shares.items()}
    whole = {name: int(number + 1e-9) for name, number in exact.items()}
    by_remainder = sorted(shares, key=lambda name: whole[name] - exact[name])
    for name in by_remainder[: N - sum(whole.values())]:
        whole[name] += 1
    return whole
