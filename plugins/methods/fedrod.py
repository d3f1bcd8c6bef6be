"""Fed-RoD: one body, a generic head trained on a balanced loss, and a personal one on top (Chen and Chao, ICLR 2022,
arXiv 2107.00778)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedbench import hookimpl
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
from fedbench.models.backbone import HEAD, Begin, Classifier
from fedbench.options import Count, NotNegative, judged
from fedbench.types import ClientCost

PERSONAL = "personal"
HIDDEN, MADE = "hyper_hidden", "hyper_made"  # the layers of H
A_M = "a_m"  # what a client keeps then
Balanced = Callable[[Tensor, Tensor], Tensor]


@judged("fedrod")
def fedrod(
    setup: Setup,
    balance: Literal["softmax", "risk"] = "softmax",
    gamma: NotNegative = 1.0,
    body: Begin = "pretrained",
    aggregator: Ref = "weighted_mean",
    personal: Literal["linear", "hypernetwork"] = "linear",
    hidden: Count = 32,
) -> Method:
    """Body and generic head minimise a class-balanced loss and are averaged; every client has a personal head besides,
    trained by plain cross-entropy on the sum of both heads' logits.

    The personal head's loss moves that head alone, body and generic head move by the balanced loss alone. balance:
    `softmax`, -log(N_y^gamma exp g_y / sum_c N_c^gamma exp g_c), or `risk`, cross-entropy weighted by 1 / N_y^gamma,
    where N_c counts the client's images of class c; gamma 0 makes both plain cross-entropy. body: `pretrained`, as the
    backbone is, or `random`. The personal head begins at 0, and a client that never took part answers with the generic
    head, which is also the global model. The loss recorded is the balanced one.

    personal: `linear`, every client keeps a head of its own and trains it in the same step as the rest; or
    `hypernetwork` (their Fed-RoD (hyper), which the FedV paper compares with): the head is H(a_m) of the client's class
    distribution a_m, the fractions N_c / N, where H is shared and averaged with the rest: a layer of `hidden` units,
    ReLU, and a layer that gives all of the head's weights. As the FedV paper has it, the generic part is updated first:
    in every local step, on the batch, and then H on the same batch. Ours: hidden 32, that the turns alternate by step,
    the suite's optimiser and clipping for each, H's last layer begins at 0, and a regulariser pulls the generic part
    alone.
    """
    model = trainable(setup, body)

    def balanced_of(N: Tensor) -> Balanced:
        return BALANCED[balance](N, gamma)

    if personal == "linear":
        return linear(setup, model, balanced_of, aggregator)
    return hypernetwork(setup, model, balanced_of, aggregator, hidden)


def counts(visit: Visit, setup: Setup) -> Tensor:
    """(C,) int64: N_c, how many images of each class the client has."""
    return torch.bincount(visit.y(), minlength=setup.num_classes).to(setup.device)


# --- heads that clients keep ----------------------------------------------------------------------------------------


def linear(setup: Setup, model: WholeModel, balanced_of: Callable[[Tensor], Balanced], aggregator: Ref) -> Method:
    """Fed-RoD (linear)."""

    def train(visit: Visit) -> tuple[float, Tensors]:
        own = copies(no_head(visit.start) if (kept := visit.own()) is None else kept)
        balanced = balanced_of(counts(visit, setup))

        def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            generic, personal = losses(model, visit.weights, own, x, y, balanced)
            return generic, personal + visit.pull()

        return fit(setup, loss_of, [visit.weights, own], visit.batches(), visit.steps), own

    def price() -> ClientCost:
        head = no_head(model.weights()).values()
        return price_of(setup, model, first_loss, own_bytes=sum(p.nbytes for p in head))

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


def first_loss(model: WholeModel, x: Tensor, y: Tensor) -> Tensor:
    """Both, of a client that begins."""
    weights = model.weights()
    generic, personal = losses(model, weights, copies(no_head(weights)), x, y, F.cross_entropy)
    return generic + personal


def no_head(weights: Tensors) -> dict[str, Tensor]:
    """A personal head as it begins."""
    return {f"{PERSONAL}.{part}": torch.zeros_like(weights[f"{HEAD}.{part}"]) for part in ("weight", "bias")}


# --- heads that one network makes -----------------------------------------------------------------------------------


class FromZero(Classifier):
    """A layer that begins at 0."""

    def draw(self, generator: torch.Generator) -> None:
        for parameter in (self.weight, self.bias):
            torch.nn.init.zeros_(parameter)


def hypernetwork(
    setup: Setup, model: WholeModel, balanced_of: Callable[[Tensor], Balanced], aggregator: Ref, hidden: int
) -> Method:
    """Fed-RoD (hyper): H is two more layers of the model that everybody trains; what a client keeps is its a_m."""
    C, like = setup.num_classes, next(model.parameters())
    D = model.body.num_features
    layers = model.body.classifiers
    layers[HIDDEN] = Classifier(C, hidden).to(like.device, like.dtype)
    layers[MADE] = FromZero(hidden, C * D + C).to(like.device, like.dtype)

    def train(visit: Visit) -> tuple[float, Tensors]:
        N = counts(visit, setup)
        balanced, a = balanced_of(N), (N.double() / N.sum()).to(like.dtype)
        H = {name: w for name, w in visit.weights.items() if name.startswith((HIDDEN, MADE))}
        rest = {name: w for name, w in visit.weights.items() if name not in H}

        def of_generic(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | float]:
            return balanced(model.logits(visit.weights, x), y), visit.pull()

        def of_personal(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
            return made_loss(model, visit.weights, a, x, y), 0.0

        mean_loss = fit(setup, of_generic, [rest], visit.batches(), visit.steps, then=(of_personal, [H]))
        return mean_loss, {A_M: a}

    def personal(weights: Tensors, own: Tensors) -> Answer:
        head = made_head(weights, own[A_M])
        return Answer(model, weights, lambda z: read(weights, HEAD, z) + read(head, PERSONAL, z))

    return wholemodel(setup, model, train, lambda: price_of(setup, model, loss_of_turns), aggregator, personal)


def made_head(weights: Tensors, a: Tensor) -> dict[str, Tensor]:
    """H(a): the weights (C, D) and biases (C,) of a personal head."""
    C, D = weights[f"{HEAD}.weight"].shape
    flat = read(weights, MADE, F.relu(read(weights, HIDDEN, a)))
    return {f"{PERSONAL}.weight": flat[: C * D].view(C, D), f"{PERSONAL}.bias": flat[C * D :]}


def made_loss(model: WholeModel, weights: Tensors, a: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of the sum of both heads' logits, which moves H alone."""
    with torch.no_grad():
        z = model.features(weights, x)
        generic = read(weights, HEAD, z)
    return F.cross_entropy(generic + read(made_head(weights, a), PERSONAL, z), y)


def loss_of_turns(model: WholeModel, x: Tensor, y: Tensor) -> Tensor:
    """Of both turns on a batch, whatever the client."""
    weights = model.weights()
    a = x.new_zeros(weights[f"{HIDDEN}.weight"].shape[1])
    return F.cross_entropy(model.logits(weights, x), y) + made_loss(model, weights, a, x, y)


# --- losses that do not mind how often a class occurs ---------------------------------------------------------------


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
    register(
        "fedrod",
        fedrod,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=4,
        later=["personal", "hidden"],
        family="Whole models",
        paper="Chen and Chao, Fed-RoD, ICLR 2022, arXiv 2107.00778",
    )
