"""The tokens of many clients on their way through the layers: together as long as the same clients go on together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Together:
    """What several clients got in one pass: their rows (B_1 + ... + B_n, T, D), one client's after the other's."""

    clients: tuple[int, ...]
    sizes: tuple[int, ...]
    rows: Tensor

    @cached_property
    def parts(self) -> dict[int, Tensor]:
        return dict(zip(self.clients, self.rows.split(self.sizes), strict=True))


class Tokens:
    """The tokens of every client as they are now."""

    def __init__(self, sizes: dict[int, int], drawn: Mapping[int, int] | None = None) -> None:
        """sizes: B_n of every client · drawn: for how many of these rows it draws masks, by default for all."""
        self.sizes, self.drawn = sizes, sizes if drawn is None else drawn
        self.at: dict[int, Together] = {}

    def put(self, clients: Sequence[int], rows: Tensor) -> None:
        """What these clients got of a pass."""
        made = Together(tuple(clients), tuple(self.sizes[n] for n in clients), rows)
        self.at |= dict.fromkeys(clients, made)

    def of(self, clients: Sequence[int]) -> Tensor:
        """(B_1 + ... + B_n, T, D): these clients' rows, copied only where they were not together."""
        first = self.at[clients[0]]
        if first.clients == tuple(clients) and all(self.at[n] is first for n in clients):
            return first.rows
        return joined([self.at[n].parts[n] for n in clients])

    def alike(self, clients: Sequence[int]) -> list[list[int]]:
        """The clients in groups that have equally many rows of equally many tokens each."""
        groups: dict[Any, list[int]] = {}
        for n in clients:
            groups.setdefault((self.sizes[n], self.at[n].rows.shape[1]), []).append(n)
        return list(groups.values())


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts one after the other."""
    joint: Tensor = parts[0] if len(parts) == 1 else _Joined.apply(*parts)
    return joint


class _Joined(torch.autograd.Function):
    """torch.cat, whose gradient is cut in one operation rather than in as many as there are parts."""

    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        ctx.sizes = [len(part) for part in parts]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return grad.split(ctx.sizes)
