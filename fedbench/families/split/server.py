"""The server of split learning: the rules that it follows, and how it gets its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    Annotated,
    Any,
    Literal,
    Required,  # pydantic takes typing's TypedDict only from Python 3.12 on
)

import torch
from torch import Tensor
from typing_extensions import TypedDict

from fedbench.errors import UserError
from fedbench.families.forward_only import Direction, descend, losses_around
from fedbench.families.split.cut import Cut
from fedbench.method import Setup
from fedbench.models.optimizer import make_optimizer
from fedbench.options import NotNegative, Positive, Range

Learns = Literal["last_step", "every_step", "losses"]


class ServerOptimizer(TypedDict, total=False):
    """The optimizer that steps along the server's gradient, at the rate `server_lr`; what is left out is 0."""

    name: Required[Literal["sgd", "adamw"]]
    momentum: Annotated[float, Range(0, below=1)]
    weight_decay: NotNegative


class ClientOptimizer(ServerOptimizer, total=False):
    """The clients' optimizer, in the form of `train.optimizer`."""

    lr: Required[Positive]


OPTIONS = {"sgd": ("lr", "momentum", "weight_decay"), "adamw": ("lr", "weight_decay")}


def with_optimizer(setup: Setup, optimizer: Mapping[str, Any] | None) -> Setup:
    """Replace `train.optimizer` of a setup.

    Args:
        setup: of the method.
        optimizer: in the form of a suite; `momentum` and `weight_decay` are 0 where they are left out. None leaves
            the setup as it is.

    Raises:
        UserError: for an option that the optimizer does not have.
    """
    if optimizer is None:
        return setup
    return replace(setup, train={**setup.train, "optimizer": _complete("optimizer", optimizer)})


def of_server(optimizer: Mapping[str, Any] | None, learns: str) -> dict[str, Any] | None:
    """The server's own optimizer, complete except for its rate, which is `server_lr`; None for the plain step.

    Raises:
        UserError: for an option that the optimizer does not have, and where the server learns from losses.
    """
    if optimizer is None:
        return None
    if learns == "losses":
        raise UserError("server_optimizer: a server that learns from losses steps along each z, and keeps no gradient")
    return _complete("server_optimizer", optimizer)


def _complete(option: str, given: Mapping[str, Any]) -> dict[str, Any]:
    name = given["name"]
    if odd := [key for key in given if key not in ("name", *OPTIONS[name])]:
        raise UserError(f"{option}: {name} has no {odd[0]!r}; it has {', '.join(OPTIONS[name])}")
    return {"name": name, **dict.fromkeys(OPTIONS[name][1:], 0.0), **given}


@dataclass(frozen=True)
class Rules:
    """How the server learns, and when heads and tails are averaged; see `split` for each option.

    Attributes:
        learns: one of `Learns`.
        lr: eta of the server's step.
        decay: `server_decay`.
        epsilon: how far SPSA moves the weights.
        directions: `num_directions`.
        fedround: rounds from one average of heads and tails to the next.
        rounds: T.
        optimizer: the server's own, if any.
    """

    learns: str
    lr: float
    decay: float
    epsilon: float
    directions: int
    fedround: int
    rounds: int
    optimizer: Mapping[str, Any] | None = None

    @property
    def every_step(self) -> bool:
        """Whether the server steps at every local step, rather than at the round's last only."""
        return self.learns == "every_step"

    def eta(self, t: int) -> float:
        """The server's learning rate in round t."""
        return self.lr * float(self.decay ** ((t >= self.rounds / 2) + (t >= 3 * self.rounds / 4)))

    def averages(self, t: int) -> bool:
        """Whether heads and tails are averaged at the end of round t."""
        return t % self.fedround == 0


Values = dict[str, Tensor]
Tensors = Mapping[str, Tensor]
LOSSES = "model.losses"  # the place of FedVZ's losses in what a client sends


class OwnOptimizer:
    """The server's own optimizer of w_E, where FedV's Algorithm 1 writes a plain step (line 19).

    It steps w_E in place; its moments and numbers of steps last from round to round.
    """

    def __init__(
        self, w_E: Tensors, options: Mapping[str, Any], kept: Mapping[str, Tensors], heads: Sequence[Tensor] = ()
    ) -> None:
        """Make a server.

        Args:
            w_E: The encoder's weights, by name.
            options: As a suite's, without the learning rate.
            kept: By parameter, as `kept` gave it; empty before the first step.
            heads: Those that are classifiers', where they have a rate of their own.
        """
        self.w_E, self.heads = w_E, set(map(id, heads))
        rates = {"lr": 0.0, "head_lr": 0.0 if heads else None}
        self.optimizer = make_optimizer(list(w_E.values()), {**options, **rates}, heads=heads)
        for name, parts in kept.items():
            # Torch counts steps on the CPU, wherever the weights are.
            place = {part: "cpu" if part == "step" else w_E[name].device for part in parts}
            self.optimizer.state[w_E[name]] = {part: value.to(place[part], copy=True) for part, value in parts.items()}

    def step(self, gradient: Tensors, lr: float, head_lr: float = 0.0) -> None:
        """One step on this gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = head_lr if id(group["params"][0]) in self.heads else lr
        for name, w in self.w_E.items():
            w.grad = gradient[name]
        self.optimizer.step()
        for w in self.w_E.values():
            w.grad = None

    def kept(self) -> dict[str, dict[str, Tensor]]:
        """Copies of the moments and numbers of steps, from which the next round resumes."""
        of_all = {name: self.optimizer.state.get(w) or {} for name, w in self.w_E.items()}
        found = {
            name: {part: value.detach().clone() for part, value in parts.items() if isinstance(value, Tensor)}
            for name, parts in of_all.items()
        }
        return {name: parts for name, parts in found.items() if parts}


class Backward:
    """Option I of Algorithm 1: g_s(i) = dL_i / dw_E.

    optimizer: the server's own; None takes the plain step of line 19.
    """

    def __init__(self, cut: Cut, optimizer: OwnOptimizer | None = None) -> None:
        self.cut, self.optimizer = cut, optimizer
        self.total: Values = {}
        self.count = 0

    def trained(self) -> Mapping[str, Tensor]:
        """What the loss is differentiated by, besides the client's own."""
        return self.cut.w_E

    def ask(self, h: Tensor, loss: Callable[[Tensor], Tensor], t: int, client: int) -> Values:
        """What the client sends besides: nothing, the gradient comes out of its backward pass."""
        return {}

    def take(self, message: Values, t: int, client: int) -> None:
        """Add a client's gradients."""
        for name, g in message.items():
            self.total[name] = self.total[name] + g if name in self.total else g.clone()
        self.count += 1

    @torch.no_grad()
    def step(self, w_E: Mapping[str, Tensor], lr: float) -> None:
        """Step in place, w_E -= lr / m sum_i g_s(i) for the m clients taken, and forget their gradients.

        With an optimiser it is what that makes of the mean.
        """
        if self.optimizer and self.count:
            self.optimizer.step({name: total.div_(self.count) for name, total in self.total.items()}, lr)
        else:
            for name, w in w_E.items() if self.count else ():
                w -= lr / self.count * self.total[name]
        self.total, self.count = {}, 0


@dataclass
class ZerothOrder:
    """Option II: the mean over `directions` of SPSA's estimates (Eq. 5), which take two losses each."""

    cut: Cut
    seed: int
    epsilon: float
    directions: int
    heard: list[tuple[list[Direction], Tensor]] = field(default_factory=list)

    def trained(self) -> Mapping[str, Tensor]:
        """Return nothing: no gradient of a weight is computed."""
        return {}

    def ask(self, h: Tensor, loss: Callable[[Tensor], Tensor], t: int, client: int) -> Values:
        """The losses (directions, 2) at w_E + eps z and w_E - eps z."""
        modules, h = self.cut.server_modules, h.detach()
        both = [losses_around(modules, lambda: loss(self.cut.E(h)), z, self.epsilon) for z in self._z(t, client)]
        return {LOSSES: torch.stack(both)}

    def take(self, message: Values, t: int, client: int) -> None:
        """Note the slopes along a client's directions."""
        plus, minus = message[LOSSES].T
        self.heard.append((self._z(t, client), (plus - minus) / (2 * self.epsilon)))

    @torch.no_grad()
    def step(self, w_E: Mapping[str, Tensor], lr: float) -> None:
        """The same, each z drawn again where it is added. Waits for a GPU once."""
        every = torch.stack([slopes for _, slopes in self.heard]).tolist() if self.heard else []
        for (z, _), slopes in zip(self.heard, every, strict=True):
            descend(w_E, z, slopes, lr / len(self.heard))
        self.heard = []

    def _z(self, t: int, client: int) -> list[Direction]:
        return [Direction(self.seed, t, client, number) for number in range(self.directions)]


class Frozen:
    """A server that never learns: the control that costs nothing."""

    def trained(self) -> Mapping[str, Tensor]:
        """Return nothing."""
        return {}

    def ask(self, h: Tensor, loss: Callable[[Tensor], Tensor], t: int, client: int) -> Values:
        """Return nothing."""
        return {}

    def take(self, message: Values, t: int, client: int) -> None:
        """Ignore it."""

    def step(self, w_E: Mapping[str, Tensor], lr: float) -> None:
        """Leave the weights as they are."""


Server = Backward | ZerothOrder | Frozen
