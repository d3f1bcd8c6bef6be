"""What rules of forward-only training share: directions from seeds, moves along them, their replay, and SPSA.

SPSA is a gradient from forward passes alone (Spall, 1992; FedVZ, Eq. 5):

    g = (L(w + eps z) - L(w - eps z)) / (2 eps) z,    z ~ N(0, I)

z is never stored: wherever a part of it is needed, that part is drawn again from its seed. The weights are never
moved either: a module computes with a copy of its own weights, w +- eps z, that is made when it is called and dropped
when it returns. So they keep their bits, and a call needs one module's weights more than a forward pass does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.forward import ForwardClient
from fedbench.seeding import generator

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


CHUNK = 2**16  # numbers of z that exist at once
ON_GPU = 2**22  # of them there, where launching is what takes time


@dataclass(frozen=True)
class Direction:
    """One z, by what it is drawn from: the run's seed, the round, the client, and its number among the client's."""

    seed: int
    t: int
    client: int
    number: int = 0

    @torch.no_grad()
    def add(self, name: str, tensor: Tensor, scale: float) -> Tensor:
        """Add scale z to a contiguous tensor, with the part of z that belongs to the parameter of that name."""
        draw = generator(self.seed, self.t, self.client, f"spsa/{self.number}/{name}", tensor.device)
        for part in tensor.view(-1).split(ON_GPU if tensor.is_cuda else CHUNK):
            z = torch.empty_like(part).normal_(generator=draw)
            part.add_(z, alpha=scale)
        return tensor


@torch.no_grad()
def losses_around(
    modules: Mapping[str, nn.Module], loss: Callable[[], Tensor], direction: Direction, epsilon: float
) -> Tensor:
    """(2,) float64: L(w + eps z) and L(w - eps z), whose difference by 2 eps is the slope.

    modules: what w belongs to, by the prefix of its names; loss() calls them and gives a scalar.
    """
    losses = []
    for sign in (1, -1):
        with perturbed(modules, direction, sign * epsilon):
            losses.append(loss().double())
    return torch.stack(losses)


@contextmanager
def perturbed(modules: Mapping[str, nn.Module], direction: Direction, scale: float) -> Iterator[None]:
    """Inside, every module below `modules` computes with w + scale z in place of its own w."""
    with ExitStack() as hooks:
        for prefix, top in modules.items():
            for path, module in top.named_modules(prefix=prefix):
                if any(True for _ in module.parameters(recurse=False)):
                    _hook(hooks, path, module, direction, scale)
        yield


def _hook(hooks: ExitStack, path: str, module: nn.Module, direction: Direction, scale: float) -> None:
    slots: dict[str, Any] = module._parameters  # of parameters, and of plain tensors for the time of a call
    own = {name: parameter for name, parameter in slots.items() if parameter is not None}

    def move(*_: Any) -> None:
        for name, parameter in own.items():
            copy = parameter.detach().clone(memory_format=torch.contiguous_format)
            slots[name] = direction.add(f"{path}.{name}", copy, scale)

    def restore(*_: Any) -> None:
        slots.update(own)

    hooks.callback(module.register_forward_pre_hook(move).remove)
    hooks.callback(module.register_forward_hook(restore, always_call=True).remove)


def descend(w: Mapping[str, Tensor], directions: Sequence[Direction], slopes: Sequence[float], lr: float) -> None:
    """Subtract lr times the mean of slope z over the directions, in place; w has the names that z was drawn by."""
    for name, tensor in w.items():
        for direction, s in zip(directions, slopes, strict=True):
            direction.add(name, tensor, -lr * s / len(directions))
