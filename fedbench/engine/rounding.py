"""Tokens in bfloat16 from layer to layer on a GPU, where `precision: bf16` lets products be so.

Torch's autocast leaves what layers add to in float32: residuals are read and written with twice the bytes, and cast on
their way into every product. The final norm and those of the layers compute in float32 all the same, as autocast has
it, and so are adapters, their gradients and the optimiser.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rounded(tokens: Tensor) -> Tensor:
    """The tokens in the type of the products that are to be made of them; on a CPU as they are."""
    kind = _products(tokens)
    return tokens if kind is None or tokens.dim() != 3 else tokens.to(kind)


def _products(x: Tensor) -> torch.dtype | None:
    """bfloat16 inside autocast to it on a GPU."""
    rounds = x.is_cuda and torch.is_autocast_enabled("cuda")
    return torch.bfloat16 if rounds and torch.get_autocast_dtype("cuda") == torch.bfloat16 else None
