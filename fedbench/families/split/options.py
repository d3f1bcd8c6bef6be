"""The options of split learning: what they may be, and what they say of round t."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
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
        value = optimizer.get(key)
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not right or (key == "lr" and value == 0) or (key == "momentum" and value >= 1):
            wanted = {"lr": "a number above 0", "momentum": "a number from 0 to below 1"}.get(key, "a number from 0")
            raise UserError(f"optimizer: {key} is {wanted}, not {value!r}")
    filled = {"name": name, **dict.fromkeys(OPTIONS[name][1:], 0.0), **optimizer}
    return replace(setup, train={**setup.train, "optimizer": filled})


def check(learns: str, lr: float, decay: float, epsilon: float, directions: int, fedround: int) -> None:
    """Raises UserError for an option that means nothing."""
    if learns not in LEARNS:
        raise UserError(f"learns is {', '.join(LEARNS)}, not {learns!r}")
    for option, value, least in (("num_directions", directions, 1), ("fedround", fedround, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UserError(f"{option} is a whole number from {least} on, not {value!r}")
    for option, value in (("server_lr", lr), ("server_decay", decay), ("epsilon", epsilon)):
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not right or (value == 0 and option != "server_lr"):
            raise UserError(f"{option} is a number above 0{' (or 0)' if option == 'server_lr' else ''}, not {value!r}")
