"""Fed-RoD: one body, a generic head trained on a balanced loss, and a personal one on top (Chen and Chao, ICLR 2022,
arXiv 2107.00778)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.families.wholemodel import (
    Answer,
    Tensors,
    Visit,
    WholeModel,
    copies,
    fit,
    price_of,
    read,
    trainable,
    wholemodel,
)
from fedbench.method import Method, Ref, Setup
from fedbench.models.backbone import HEAD
from fedbench.types import ClientCost

PERSONAL = "personal"
Balanced = Callable[[Tensor, Tensor], Tensor]


def fedrod(
    setup: Setup,
    balance: str = "softmax",
    gamma: float = 1.0,
    body: str = "pretrained",
    aggregator: Ref = "weighted_mean",
) -> Method:
    """Body and generic head minimise a class-balanced loss and are averaged; every client keeps a personal head,
    trained by plain cross-entropy on the sum of both heads' logits.

    The linear version: the personal head's loss moves that head alone, body and generic head move by the balanced loss
    alone, both in the same step. balance: `softmax`, -log(N_y^gamma exp g_y / sum_c N_c^gamma exp g_c), or `risk`,
    cross-entropy weighted by 1 / N_y^gamma, where N_c counts the client's images of class c; gamma 0 makes both plain
    cross-entropy. body: `pretrained`, as the backbone is, or `random`. The personal head begins at 0, so that a client
    that never took part answers with the generic head, which is also the global model. The loss recorded is the
    balanced one.
    """
    if balance not in BALANCED:
        raise UserError(f"fedrod: balance is {' or '.join(BALANCED)}, not {balance!r}")
    if gamma < 0:
        raise UserError(f"fedrod: gamma is at least 0, not {gamma}")
    model, C = trainable(setup, body), setup.num_classes

    def train(visit: Visit) -> tuple[float, Tensors]:
        own = copies(no_head(visit.start) if visit.own is None else visit.own)
        balanced = BALANCED[balance](torch.bincount(visit.y(), minlength=C).to(setup.device), gamma)

        def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            generic, personal = losses(model, visit.weights, own, x, y, balanced)
            return generic, personal + visit.pull()

        return fit(setup, loss_of, [visit.weights.values(), own.values()], visit.batches(), visit.steps), own

    def one_image(model: WholeModel, x: Tensor, y: Tensor) -> Tensor:
        weights = model.weights()
        generic, personal = losses(model, weights, copies(no_head(weights)), x, y, F.cross_entropy)
        return generic + personal

    def price() -> ClientCost:
        head = no_head(model.weights()).values()
        return price_of(setup, model, one_image, own_bytes=sum(p.nbytes for p in head))

    def personal(weights: Tensors, own: Tensors) -> Answer:
        return Answer(model, weights, lambda z: read(weights, HEAD, z) + read(own, PERSONAL, z))

    return wholemodel(setup, model, train, price, aggregator, personal)


def losses(
    model: WholeModel, weights: Tensors, own: Tensors, x: Tensor, y: Tensor, balanced: Balanced
) -> tuple[Tensor, Tensor]:
    """The balanced loss of the generic head, and the plain one of the sum, which moves the personal head alone."""
    z = model.features(weights, x)
    generic = read(weights, HEAD, z)
    return balanced(generic, y), F.cross_entropy(generic.detach() + read(own, PERSONAL, z.detach()), y)


def no_head(weights: Tensors) -> dict[str, Tensor]:
    """A personal head as it begins."""
    return {f"{PERSONAL}.{part}": torch.zeros_like(weights[f"{HEAD}.{part}"]) for part in ("weight", "bias")}


def balanced_softmax(count: Tensor, gamma: float) -> Balanced:
    """-log(N_y^gamma exp g_y / sum_c N_c^gamma exp g_c), the batch mean; count (C,) are the N_c (Ren et al., NeurIPS
    2020)."""
    prior = count.double().log()  # -inf where the client has no such image
    prior = gamma * prior if gamma else torch.zeros_like(prior)  # 0^0 = 1: plain cross-entropy
    return lambda logits, y: F.cross_entropy(logits + prior.to(logits.dtype), y)


def balanced_risk(count: Tensor, gamma: float) -> Balanced:
    """q_y CE, the batch mean, q_c in proportion to 1 / N_c^gamma; over all of the client's images its mean is 1."""
    raw = torch.where(count > 0, count.double().clamp(min=1) ** -gamma, 0.0)
    q = raw * count.sum() / (raw * count).sum()
    return lambda logits, y: (q.to(logits.dtype)[y] * F.cross_entropy(logits, y, reduction="none")).mean()


BALANCED = {"softmax": balanced_softmax, "risk": balanced_risk}


@hookimpl
def fedbench_register_methods(register):
    register("fedrod", fedrod)
