"""The options of split learning: what they may be, and what follows from them in round t."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import (
    Annotated,
    Any,
    Literal,
    Required,  # pydantic takes typing's TypedDict only from Python 3.12 on
)

from typing_extensions import TypedDict

from fedbench.errors import UserError
from fedbench.method import Setup
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
