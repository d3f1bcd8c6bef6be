"""Micro-batches: whose batches can be computed in parts, whose gradients add up to that of the whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.errors import NotApplicable
from fedbench.models.cost import micro_batch_of, recomputes
from fedbench.types import Objective

IMAGES = (3, 2)  # in the two parts of a batch on which an objective is tried


def is_mean(objective: Objective, exits: int, classes: int, rounds: int) -> bool:
    """Return whether an objective of a batch is the mean over its images, in the first round and in the last.

    It is tried on random logits. Cross-entropy and distillation between the exits of an image are such means; what
    compares images with each other is none.
    """
    n, B = IMAGES[0], sum(IMAGES)
    with torch.device("cpu"):  # also where the model is but a shape
        draw = torch.Generator().manual_seed(0)
        logits = torch.randn(exits, B, classes, generator=draw, dtype=torch.float64)
        y = torch.arange(B) % classes

        def of(rows: slice, t: int) -> Tensor:
            return objective(list(logits[:, rows].unbind()), y[rows], t)

        try:
            return all(
                torch.allclose(of(slice(B), t), n / B * of(slice(n), t) + (1 - n / B) * of(slice(n, B), t))
                for t in (0, rounds - 1)
            )
        except Exception:  # it takes other logits than these, and nothing is known of it
            return False


def mixes_images(model: nn.Module) -> bool:
    """Return whether a layer of the model normalises over the images of a batch."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def refuse_parts(train: Mapping[str, Any], splits: bool) -> None:
    """Raise NotApplicable where a batch cannot be split, and the suite says how many images pass at once.

    Args:
        train: The suite's `train` section.
        splits: Whether a batch can be split.
    """
    if not splits and micro_batch_of(train):
        raise NotApplicable(
            "train.micro_batch: the method's loss is no mean over the images of a batch, which cannot be computed in "
            "parts; leave micro_batch out, or set it to null for this method"
        )


def refuse_for_a_cut(train: Mapping[str, Any]) -> None:
    """Raise NotApplicable where the suite saves memory in a way that a model does not have which is cut in two.

    Clients of split learning send the features of a whole batch, and wait for their gradients.
    """
    ways = {"micro_batch": micro_batch_of(train) is not None, "checkpointing": recomputes(train)}
    if asked := [f"train.{way}" for way, given in ways.items() if given]:
        raise NotApplicable(
            f"{', '.join(asked)}: split learning sends the features of whole batches, and keeps what its backward pass "
            "needs; set it to null or false for this method"
        )
