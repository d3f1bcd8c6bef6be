"""The options of split learning: what they may be, and what they say of round t."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict  # pydantic takes that of `typing` from Python 3.12 on

from fedbench.errors import UserError
from fedbench.method import Setup
from fedbench.options import NotNegative, Positive, Range


class ServerOptimizer(TypedDict, total=False):
    """What makes a step of the server's gradient, whose rate is `server_lr`; what is left out is 0."""

    name: Literal["sgd", "adamw"]
    momentum: Annotated[float, Range(0, below=1)]
    weight_decay: NotNegative


class ClientOptimizer(ServerOptimizer, total=False):
    """The clients' optimiser, as `train.optimizer` says it."""

    lr: Positive


LEARNS = ("last_step", "every_step", "losses")
OPTIONS = {"sgd": ("lr", "momentum", "weight_decay"), "adamw": ("lr", "weight_decay")}


def with_own(setup: Setup, optimizer: Mapping[str, Any] | None) -> Setup:
    """The setup with this in place of `train.optimizer`; None leaves it as it is.

    optimizer: as in a suite; `momentum` and `weight_decay` are 0 where they are left out. Raises UserError.
    """
    if optimizer is None:
        return setup
    return replace(setup, train={**setup.train, "optimizer": _complete("optimizer", optimizer)})


def of_server(optimizer: Mapping[str, Any] | None, learns: str) -> dict[str, Any] | None:
    """The server's own optimiser, complete but for its rate, which is `server_lr`; None for the plain step.

    Raises UserError.
    """
    if optimizer is None:
        return None
    if learns == "losses":
        raise UserError("server_optimizer: a server that learns from losses steps along each z, and keeps no gradient")
    if isinstance(optimizer, Mapping) and "lr" in optimizer:
        raise UserError("server_optimizer has no lr of its own: its rate is server_lr")
    return _complete("server_optimizer", optimizer, needed=())


def _complete(option: str, given: Any, needed: Sequence[str] = ("lr",)) -> dict[str, Any]:
    """needed: what has no default, besides the name."""
    if not isinstance(given, Mapping) or given.get("name") not in OPTIONS:
        wanted = ", ".join(["name: sgd or adamw", *(f"{key}: ..." for key in needed)])
        raise UserError(f"{option} is {{{wanted}}} or null, not {given!r}")
    name, *rest = given["name"], *(key for key in given if key != "name")
    if odd := [key for key in rest if key not in OPTIONS[name]]:
        raise UserError(f"{option}: {name} has no {odd[0]!r}; it has {', '.join(OPTIONS[name])}")
    for key in (*needed, *rest):
        value: Any = given.get(key)
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not right or (key == "lr" and value == 0) or (key == "momentum" and value >= 1):
            wanted = {"lr": "a number above 0", "momentum": "a number from 0 to below 1"}.get(key, "a number from 0")
            raise UserError(f"{option}: {key} is {wanted}, not {value!r}")
    return {"name": name, **dict.fromkeys(OPTIONS[name][1:], 0.0), **given}


@dataclass(frozen=True)
class Rules:
    """How the server learns, and when heads and tails are averaged, see `split`. Raises UserError for what means
    nothing.

    lr: eta of the server's step · directions: `num_directions` · rounds: T · optimizer: the server's own, if any.
    """

    learns: str
    lr: float
    decay: float
    epsilon: float
    directions: int
    fedround: int
    rounds: int
    optimizer: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.learns not in LEARNS:
            raise UserError(f"learns is {', '.join(LEARNS)}, not {self.learns!r}")
        for option, value in (("num_directions", self.directions), ("fedround", self.fedround)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{option} is a whole number from 1 on, not {value!r}")
        for option, number in (("server_lr", self.lr), ("server_decay", self.decay), ("epsilon", self.epsilon)):
            right = isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < math.inf
            if not right or (number == 0 and option != "server_lr"):
                zero = " (or 0)" if option == "server_lr" else ""
                raise UserError(f"{option} is a number above 0{zero}, not {number!r}")

    @property
    def every_step(self) -> bool:
        """Whether the server steps at every local step, and not at the round's last alone."""
        return self.learns == "every_step"

    def eta(self, t: int) -> float:
        """The server's learning rate in round t."""
        return self.lr * float(self.decay ** ((t >= self.rounds / 2) + (t >= 3 * self.rounds / 4)))

    def averages(self, t: int) -> bool:
        """Whether heads and tails are averaged at the end of round t."""
        return t % self.fedround == 0
