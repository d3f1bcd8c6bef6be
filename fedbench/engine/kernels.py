"""The same products by faster kernels: for frozen linear layers and small attention on a CPU. Exact up to the
order of sums.

What is chosen depends on the CPU's vendor and the tensors' shapes alone, never on timing, so that equal
machines give equal bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fedbench import machine

# Up to this many tokens the score matrix is small, and three plain products beat the fused kernel on a CPU.
EXPLICIT_ATTENTION_TOKENS = 128


@functools.cache
def onednn_linear() -> Callable[..., Tensor] | None:
    """oneDNN's matrix product where it is the faster one: on AMD, PyTorch's default (MKL) reaches about half of
    its rate.

    The operator is undocumented, so that its presence and its result are tested before it is used. None elsewhere.
    """
    if "AMD" not in machine.vendor():
        return None
    try:
        operator = torch.ops.mkldnn._linear_pointwise
        x, w, b = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3), torch.arange(4.0)
        works = torch.allclose(operator(x, w, b, "none", [], ""), F.linear(x, w, b))
    except (AttributeError, RuntimeError):
        return None
    return (lambda x, w, b: operator(x, w, b, "none", [], "")) if works else None


class FrozenLinear(torch.autograd.Function):
    """y = x W^T + b with a gradient for x alone. Operands are made contiguous, for strided ones cost dearly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return onednn_linear()(x.contiguous(), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return onednn_linear()(grad.contiguous(), weight.t().contiguous(), None), None, None


class Fast(TorchFunctionMode):
    """While it is active, frozen float32 linear layers and short unmasked attention take the faster way."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and not kwargs and _is_frozen_cpu(*args):
            x, weight, bias = (*args, None)[:3]
            return FrozenLinear.apply(x, weight, bias)
        if func is F.scaled_dot_product_attention and len(args) == 3 and _is_plain(kwargs) and _is_short(args[0]):
            q, k, v = args
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            return scores.softmax(-1) @ v
        return func(*args, **kwargs)


def _is_frozen_cpu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    return (
        onednn_linear() is not None
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and not weight.requires_grad
        and not (bias is not None and bias.requires_grad)
        and not torch.is_autocast_enabled("cpu")
    )


def _is_plain(options: dict[str, Any]) -> bool:
    return (
        options.get("attn_mask") is None
        and not options.get("dropout_p")
        and not options.get("is_causal")
        and not (options.keys() - {"attn_mask", "dropout_p", "is_causal"})
    )


def _is_short(q: Tensor) -> bool:
    return q.device.type == "cpu" and q.shape[-2] <= EXPLICIT_ATTENTION_TOKENS
