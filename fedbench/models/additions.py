"""Frozen additions: what a server has folded into the weights under low-rank adapters (FLoRA, FedEx-LoRA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import weights
from fedbench.models.places import holders
from fedbench.types import Plan

FROZEN = "frozen"  # under which a state keeps its additions, {place of the adapter: (out, in)}
ADDED = "added"  # and the ranks of those that were made last, {place: rank}


@torch.no_grad()
def load_additions(model: Blocks, values: Mapping[str, Tensor] | None) -> None:
    """Let the model's frozen weights be W + addition where there is one, and W, to the bit, everywhere else.

    values: by the adapter's place (`r/<layer>/<module>`, `shared/<module>`), in the shape of its W. Raises UserError
    for a place where no low-rank adapter stands.
    """
    values = values or {}
    if not values and not model.bases:
        return
    under = weights(model)
    if unknown := [place for place in values if place not in under]:
        raise UserError(f"a frozen addition is meant for {unknown[0]}, where no low-rank adapter stands")
    for place in {*values, *model.bases}:
        weight = under[place]
        base = model.bases.setdefault(place, weight.detach().clone())
        weight.copy_(base + values[place].view_as(base) if place in values else base)
        if place not in values:
            del model.bases[place]


def bytes_added(state: Mapping[str, Any], plan: Plan) -> list[int]:
    """What the additions that were made last take of what each client is sent, those to the weights that it holds:
    factors of their rank, or the matrix where that is smaller. Who kept the weights but missed rounds would need more.
    """
    bytes_of = [0] * len(plan.M)
    for place, rank in state.get(ADDED, {}).items():
        matrix = state[FROZEN][place]
        size = matrix.element_size() * min(matrix.numel(), rank * sum(matrix.flatten(1).shape))
        for n in holders(plan, place):
            bytes_of[n] += size
    return bytes_of
