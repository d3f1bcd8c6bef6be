"""What weights a model begins with: those that came with it, or new ones."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import nn

from fedbench.errors import UserError
from fedbench.models.backbone import Body

Begin = Literal["pretrained", "random"]
STARTS = get_args(Begin)


def begin(body: Body, option: str, how: str, seed: int) -> None:
    """Leave the model's weights as the backbone came, or draw all of them again. Raises UserError for another `how`;
    option: what the user calls it."""
    if how not in STARTS:
        raise UserError(f"{option} is {' or '.join(STARTS)}, not {how!r}")
    if how == "random":
        redraw(body.model, seed)


@torch.no_grad()
def redraw(model: nn.Module, seed: int) -> None:
    """Draw all weights of a timm model again, as torch and timm draw such layers. Raises UserError where a parameter is
    drawn by neither, and leaves a model then that is of no use."""
    for parameter in model.parameters():
        parameter.fill_(math.nan)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in model.modules():
            if (reset := getattr(module, "reset_parameters", None)) is not None:
                reset()
        if (init := getattr(model, "init_weights", None)) is not None:
            init()
    for name, parameter in model.named_parameters():
        if not parameter.is_meta and parameter.isnan().any():
            raise UserError(
                f"{type(model).__name__} cannot be drawn again: nothing in it draws its parameter {name}; take "
                "`pretrained`, with a backbone of `pretrained: false` where no weights of others are wanted"
            )
