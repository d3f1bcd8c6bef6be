"""What clients train with: SGD or AdamW, as a suite's `train.optimizer` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_STATES = {"sgd": 1, "adamw": 2}  # tensors it keeps for every trained one


def make_optimizer(
    parameters: Sequence[Tensor], options: Mapping[str, Any], fused: bool = False
) -> torch.optim.Optimizer:
    """SGD or AdamW with a suite's options; each client of each round starts with a fresh one.

    fused: torch's implementation that steps all tensors in one call.
    """
    common = {"lr": options["lr"], "weight_decay": options["weight_decay"], "fused": fused or None}
    if options["name"] == "adamw":
        return torch.optim.AdamW(parameters, **common)
    return torch.optim.SGD(parameters, momentum=options["momentum"], **common)


def optimizer_states(optimizer: Mapping[str, Any]) -> int:
    """How many tensors it keeps for every trained one."""
    return 0 if optimizer["name"] == "sgd" and not optimizer["momentum"] else _STATES[optimizer["name"]]
