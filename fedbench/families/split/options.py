"""The options of split learning: what they may be, and what they say of round t."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedbench.errors import UserError
from fedbench.method import Setup

LEARNS = ("last_step", "every_step", "losses")
OPTIONS = {"sgd": ("lr", "momentum", "weight_decay"), "adamw": ("lr", "weight_decay")}


def with_own(setup: Setup, optimizer: Mapping[str, Any] | None) -> Setup:
    """The setup with this in place of `train.optimizer`; None leaves it as it is.

    optimizer: as in a suite; `momentum` and `weight_decay` are 0 where they are left out. Raises UserError.
    """
    if optimizer is None:
        return setup
    if not isinstance(optimizer, Mapping) or optimizer.get("name") not in OPTIONS:
        raise UserError(f"optimizer is {{name: sgd or adamw, lr: ...}} or null, not {optimizer!r}")
    name, *rest = optimizer["name"], *(key for key in optimizer if key != "name")
    if odd := [key for key in rest if key not in OPTIONS[name]]:
        raise UserError(f"optimizer: {name} has no {odd[0]!r}; it has {', '.join(OPTIONS[name])}")
    for key in ("lr", *rest):
        value: Any = optimizer.get(key)
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not right or (key == "lr" and value == 0) or (key == "momentum" and value >= 1):
            wanted = {"lr": "a number above 0", "momentum": "a number from 0 to below 1"}.get(key, "a number from 0")
            raise UserError(f"optimizer: {key} is {wanted}, not {value!r}")
    filled = {"name": name, **dict.fromkeys(OPTIONS[name][1:], 0.0), **optimizer}
    return replace(setup, train={**setup.train, "optimizer": filled})


@dataclass(frozen=True)
class Rules:
    """How the server learns, and when heads and tails are averaged, see `split`. Raises UserError for what means
    nothing.

    lr: eta of the server's step · directions: `num_directions` · rounds: T.
    """

    learns: str
    lr: float
    decay: float
    epsilon: float
    directions: int
    fedround: int
    rounds: int

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
