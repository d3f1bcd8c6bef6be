"""What clients train with: SGD or AdamW, as a suite's `train.optimizer` says, and its rates by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_STATES = {"sgd": 1, "adamw": 2}  # tensors it keeps for every trained one


def make_optimizer(
    parameters: Sequence[Tensor], options: Mapping[str, Any], fused: bool = False, heads: Sequence[Tensor] = ()
) -> torch.optim.Optimizer:
    """SGD or AdamW with a suite's options; each client of each round starts with a fresh one.

    Args:
        fused: torch's implementation that steps all tensors in one call.
        heads: those of the parameters that are classifiers', for which `head_lr` is, where it is given.
    """
    if options.get("head_lr") is not None and heads:
        theirs = {id(head) for head in heads}
        rest = [parameter for parameter in parameters if id(parameter) not in theirs]
        own = {"params": list(heads), "lr": options["head_lr"]}
        parameters = [{"params": rest}, own] if rest else [own]  # type: ignore[list-item]  # groups of them
    common = {"lr": options["lr"], "weight_decay": options["weight_decay"], "fused": fused or None}
    if options["name"] == "adamw":
        return torch.optim.AdamW(parameters, **common)
    return torch.optim.SGD(parameters, momentum=options["momentum"], **common)


def optimizer_states(optimizer: Mapping[str, Any]) -> int:
    """How many tensors it keeps for every trained one."""
    return 0 if optimizer["name"] == "sgd" and not optimizer["momentum"] else _STATES[optimizer["name"]]


def rate_share(options: Mapping[str, Any], t: int, rounds: int) -> float:
    """The share of its rates that an optimiser has in round t, from 0, of a run of so many rounds.

    The first W rounds of `warmup` have (t + 1) / (W + 1). After them, with p = (t - W) / (T - W), it is
    (1 + cos(pi p)) / 2 for `cosine` and 1 - p for `linear`, which would be 0 in the round after the last.
    """
    warmup = options.get("warmup") or 0
    W = min(warmup if warmup >= 1 else round(warmup * rounds), rounds)
    if t < W:
        return float((t + 1) / (W + 1))
    p = (t - W) / (rounds - W)
    return {"cosine": (1 + math.cos(math.pi * p)) / 2, "linear": 1 - p}.get(options.get("schedule", ""), 1.0)


class Rates:
    """The rates of the current round, for whoever reads `train["optimizer"]` in each round.

    train: the suite's section, whose optimiser is another dict than the given one where the rates change.
    """

    def __init__(self, train: Mapping[str, Any]) -> None:
        self._given, self._rounds = train.get("optimizer", {}), train["rounds"]
        self._now = dict(self._given)
        self.train = {**train, "optimizer": self._now} if {"schedule", "warmup"} & self._given.keys() else train

    def enter(self, t: int) -> None:
        """Set the rates of round t, from 0."""
        share = rate_share(self._given, t, self._rounds)
        self._now.update({key: share * rate for key in ("lr", "head_lr") if (rate := self._given.get(key)) is not None})
