"""Objectives that clients minimise."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.method import Setup
from fedbench.models.kernels import means
from fedbench.options import Count, NotNegative, judged
from fedbench.types import Objective


def cross_entropy(exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
    """sum_i CE(o_i, y) over the exits' logits (B, C); y (B,). Batch means."""
    return torch.stack([F.cross_entropy(o, y) for o in exits]).sum()


def each_cross_entropy(exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
    """`cross_entropy` (n,) of each of n clients: exits (n, B, C), y (n, B)."""
    each = [F.cross_entropy(o.flatten(0, 1), y.flatten(), reduction="none").view(y.shape) for o in exits]
    return torch.stack([means(own) for own in each], 1).sum(1)


def ramp_up(t: int, ramp_rounds: int) -> float:
    """w(t) = exp(-5 (1 - t / T_w)^2), 1 from t = T_w on (DepthFL, Sec. 3)."""
    return math.exp(-5.0 * (1.0 - min(t / ramp_rounds, 1.0)) ** 2)


def mutual_kl(exits: Sequence[Tensor], y: Tensor, t: int, ramp_rounds: int, epsilon: float = 0.0) -> Tensor:
    """sum_i CE(o_i, y) + w(t) / (m - 1) sum_{i != j} KL(softmax(o_j) || softmax(o_i)), o_j detached (DepthFL, Eq. 2).

    epsilon is added to the target distribution, as the FedRA code does (1e-7).
    """
    loss = cross_entropy(exits, y, t)
    m = len(exits)
    if m == 1:
        return loss
    log_p = [F.log_softmax(o, dim=1) for o in exits]
    targets = [F.softmax(o.detach(), dim=1) + epsilon for o in exits]
    pairs = [F.kl_div(log_p[i], targets[j], reduction="batchmean") for i in range(m) for j in range(m) if i != j]
    return loss + ramp_up(t, ramp_rounds) / (m - 1) * torch.stack(pairs).sum()


def each_mutual_kl(exits: Sequence[Tensor], y: Tensor, t: int, ramp_rounds: int, epsilon: float = 0.0) -> Tensor:
    """`mutual_kl` (n,) of each of n clients: exits (n, B, C), y (n, B)."""
    loss = each_cross_entropy(exits, y, t)
    m, B = len(exits), y.shape[1]
    if m == 1:
        return loss
    log_p = [F.log_softmax(o, dim=2) for o in exits]
    targets = [F.softmax(o.detach(), dim=2) + epsilon for o in exits]
    apart = [F.kl_div(log_p[i], targets[j], reduction="none") for i in range(m) for j in range(m) if i != j]
    pairs = torch.stack([own.flatten(1).sum(1) / B for own in apart], 1)
    return loss + ramp_up(t, ramp_rounds) / (m - 1) * pairs.sum(1)


cross_entropy.stacked = each_cross_entropy  # type: ignore[attr-defined]  # how an engine asks for many clients' losses


def one_vs_all(exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
    """sum_i sum_c BCE(sigmoid(o_ic), [y = c]) over the exits' logits (B, C); y (B,). Batch means."""
    return torch.stack([binary(o, y).sum(1).mean() for o in exits]).sum()


def each_one_vs_all(exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
    """`one_vs_all` (n,) of each of n clients: exits (n, B, C), y (n, B)."""
    each = [binary(o, y).sum(2) for o in exits]
    return torch.stack([means(own) for own in each], 1).sum(1)


def binary(o: Tensor, y: Tensor) -> Tensor:
    """(..., C): the binary cross-entropy of every class against the rest; o (..., C), y (...)."""
    return F.binary_cross_entropy_with_logits(o, F.one_hot(y, o.shape[-1]).to(o.dtype), reduction="none")


one_vs_all.stacked = each_one_vs_all  # type: ignore[attr-defined]


def make_one_vs_all() -> Objective:
    """sum_i sum_c BCE(sigmoid(o_ic), [y = c]): every class against the rest, the batch mean at each classifier."""
    return one_vs_all


def make_cross_entropy() -> Objective:
    """sum_i CE(o_i, y), the batch mean at each classifier."""
    return cross_entropy


@judged("mutual_kl")
def make_mutual_kl(setup: Setup, ramp_rounds: Count | None = None, epsilon: NotNegative = 0.0) -> Objective:
    """sum_i CE_i + w(t) / (m - 1) sum KL(o_j || o_i), with w(t) ramped up over `ramp_rounds` (default: all
    rounds of the run).

    epsilon is added to the distribution that is imitated.
    """
    T_w = setup.train["rounds"] if ramp_rounds is None else ramp_rounds
    made = functools.partial(mutual_kl, ramp_rounds=T_w, epsilon=epsilon)
    made.stacked = functools.partial(each_mutual_kl, ramp_rounds=T_w, epsilon=epsilon)  # type: ignore[attr-defined]
    return made


@hookimpl
def fedbench_register_objectives(register):
    register("cross_entropy", make_cross_entropy)
    register("one_vs_all", make_one_vs_all)
    register("mutual_kl", make_mutual_kl, profiles={"reference": {"ramp_rounds": 500, "epsilon": 1e-7}})
