"""What rules of forward-only training share: directions drawn from seeds, moves along them, and their replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedbench.engine.forward import ForwardClient
from fedbench.families.spsa import Direction

__all__ = ["Direction", "ForwardClient", "drawn", "move", "part", "put", "replay", "slope_along"]


@torch.no_grad()
def put(client: ForwardClient, values: Mapping[str, Tensor]) -> None:
    """Move what a client trains to these values, by place."""
    for place, parameter in client.parameters.items():
        parameter.copy_(values[place])
    client.mask()


@torch.no_grad()
def move(client: ForwardClient, z: Direction, scale: float) -> None:
    """Add scale z to what a client trains, drawing z again part by part."""
    for place, parameter in client.parameters.items():
        z.add(place, parameter.data, scale)
    client.mask()


def part(z: Direction, place: str, like: Tensor) -> Tensor:
    """Return the part of a direction that belongs to the tensor at a place."""
    return z.add(place, torch.zeros_like(like), 1.0)


def drawn(client: ForwardClient, z: Direction) -> dict[str, Tensor]:
    """Return z of what a client trains, by place."""
    return {place: part(z, place, p.data) for place, p in client.parameters.items()}


def slope_along(client: ForwardClient, batch: tuple[Tensor, Tensor], z: Direction, h: float) -> tuple[float, float]:
    """Return the mean of L(w + h z) and L(w - h z), and their difference by 2 h.

    The weights are moved in place and back, as in MeZO, so that no copy of them is kept; they come back up to rounding.
    """
    move(client, z, h)
    up = client.loss(batch)
    move(client, z, -2 * h)
    down = client.loss(batch)
    move(client, z, h)
    return (up + down) / 2, (up - down) / (2 * h)


def replay(
    client: ForwardClient, begun: Mapping[str, Tensor], pairs: Iterable[tuple[Direction, float]], lr: float
) -> None:
    """Put a client's parameters to where the server finds them from what it is sent: w_begun - lr sum c z."""
    put(client, begun)
    for z, c in pairs:
        move(client, z, -lr * c)
