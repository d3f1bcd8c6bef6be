"""Linear layers by faster ways, frozen ones on a CPU and those of many clients anywhere: exact up to the order of sums.

What is chosen depends on the CPU's make and the tensors' shapes alone, never on timing, so that equal
machines give equal bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedbench import machine


@functools.cache
def onednn_linear() -> Callable[..., Tensor] | None:
    """oneDNN's matrix product where it can be the faster one: on AMD, PyTorch's default (MKL) keeps to AVX2, which
    is half of a Zen 5's rate and 0.9 of a Zen 4's; without AVX-512 (Zen 3) oneDNN has 0.8 to 0.97 of MKL's.

    The operator is undocumented, so that its presence and its result are tested before it is used. None elsewhere.
    """
    if "AMD" not in machine.vendor() or not machine.has_avx512():
        return None
    try:
        operator = torch.ops.mkldnn._linear_pointwise
        x, w, b = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3) / 9, torch.arange(4.0)
        plain, rounded = operator(x, w, b, "none", [], ""), operator(x, w, b, "gelu", [], "none")
        works = torch.allclose(plain, F.linear(x, w, b)) and torch.allclose(rounded, F.gelu(F.linear(x, w, b)))
    except (AttributeError, RuntimeError):
        return None
    return (lambda x, w, b, then="none": operator(x, w, b, then, [], "none")) if works else None


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b without a graph. x (..., in), weight (out, in), bias (out,) -> (..., out)"""
    quick = onednn_linear() if x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu" else None
    # strided rows would cost far more than their copy; a transposed weight costs nothing
    return F.linear(x, weight, bias) if quick is None else quick(x.contiguous(), weight, bias)


def gelu_of_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """GELU(x W^T + b) without a graph, in one pass over the numbers where that can be. As `product`."""
    quick = onednn_linear() if x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu" else None
    return F.gelu(F.linear(x, weight, bias)) if quick is None else quick(x.contiguous(), weight, bias, "gelu")


class _Frozen(torch.autograd.Function):
    """y = x W^T + b with a gradient for x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return product(grad, weight.t()), None, None


class _LowRank(torch.autograd.Function):
    """y_n = x_n W^T + b + s (x_n A_n^T) B_n^T for stacked clients, with gradients for x, A and B.

    The narrow products are taken transposed, (r, rows) in place of (rows, r), which a CPU does about twice as
    fast; the frozen and the low-rank part of x's gradient are summed in place.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, A: Tensor, B: Tensor, scaling: float
    ) -> Tensor:
        low = torch.bmm(A, x.mT)  # (n, r, rows)
        ctx.save_for_backward(x, weight, A, B, low)
        ctx.scaling = scaling
        return product(x, weight, bias).baddbmm_(low.mT, B.mT, alpha=scaling)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, Tensor, Tensor, None]:
        x, weight, A, B, low = ctx.saved_tensors
        low_grad = torch.bmm(B.mT, grad.mT).mul_(ctx.scaling)  # (n, r, rows)
        x_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = product(grad, weight.t()).baddbmm_(low_grad.mT, A)
        B_grad = torch.bmm(low, grad).mul_(ctx.scaling).mT.contiguous()
        return x_grad, None, None, torch.bmm(low_grad, x), B_grad, None


class _Linears(torch.autograd.Function):
    """y_n = x_n W_n^T + b_n of several clients, whose gradients are products in the order of a single client's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        x_grad = torch.bmm(grad, weight) if ctx.needs_input_grad[0] else None
        return x_grad, torch.bmm(grad.mT, x), grad.sum(1)


def linears(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x_n W_n^T + b_n for each of n clients. x (n, B, in), weight (n, out, in), bias (n, out) -> (n, B, out)

    On a CPU equal to the clients' own products to the bit, but for those of fewer than 400 multiplications, which torch
    does otherwise for one and for several.
    """
    if len(x) == 1 or (_is_plain(x) and x.device.type == "cpu"):
        clients = zip(x.unbind(), weight.unbind(), bias.unbind(), strict=True)
        return torch.stack([F.linear(*client) for client in clients])
    y: Tensor = torch.baddbmm(bias.unsqueeze(1), x, weight.mT) if _is_plain(x) else _Linears.apply(x, weight, bias)
    return y


class _Means(torch.autograd.Function):
    """The mean of every row, summed on a CPU in the order in which torch's mean cross-entropy sums one row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        first, *others = rows.unbind(1)
        ctx.n = rows.shape[1]
        sums = [functools.reduce(torch.add, others[i : i + 16]) for i in range(0, len(others), 16)]
        last = sums[-1:] if len(others) % 16 else []  # sums of sixteen are put aside, and come after what is left
        whole = sums[: len(sums) - len(last)]
        parts = [*last, *([functools.reduce(torch.add, whole)] if whole else []), first]
        total: Tensor = functools.reduce(torch.add, parts)
        return total / int(ctx.n)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return (grad / int(ctx.n)).unsqueeze(1).expand(-1, ctx.n)


def means(rows: Tensor) -> Tensor:
    """(n, B) -> (n,): on a CPU to the bit what torch's losses make of each row alone, with reduction="mean"."""
    each: Tensor = _Means.apply(rows) if rows.device.type == "cpu" else rows.mean(1)
    return each


def frozen_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, where neither W nor b is trained. x (..., in), weight (out, in), bias (out,) -> (..., out)"""
    if _is_plain(x):
        return F.linear(x, weight, bias)
    return _Frozen.apply(x, weight, bias) if x.requires_grad else product(x, weight, bias)


def low_rank_linear(x: Tensor, weight: Tensor, bias: Tensor | None, A: Tensor, B: Tensor, scaling: float) -> Tensor:
    """x_n W^T + b + s (x_n A_n^T) B_n^T for each of n clients, whose rows follow each other in equal numbers.

    x (n rows, ..., in), A (n, r, in), B (n, out, r) -> (n rows, ..., out); W and b are frozen.
    """
    if weight.requires_grad or (bias is not None and bias.requires_grad):
        raise ValueError("low_rank_linear is for a frozen weight and bias; these are trained")
    rows = x.reshape(len(A), -1, x.shape[-1])
    if _is_plain(x):
        y, low = F.linear(rows, weight, bias), torch.bmm(rows, A.mT)
        y = torch.baddbmm(y, low, B.mT.to(y.dtype), alpha=scaling)
    else:
        y = _LowRank.apply(rows, weight, bias, A, B, scaling)
    return y.view(*x.shape[:-1], -1)


def _is_plain(x: Tensor) -> bool:
    """Whether torch's own operators are the faster ones (a GPU's), or the only ones (autocast, shapes alone)."""
    return x.device.type != "cpu" or torch.is_autocast_enabled("cpu")
