"""FedAvg: everybody trains the whole model, and the server averages it (McMahan et al., AISTATS 2017, arXiv
1602.05629)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor

from fedbench import hookimpl
from fedbench.families.wholemodel import Answer, OnLogits, Tensors, Visit, fit, price_of, trainable, wholemodel
from fedbench.families.width import narrowed
from fedbench.method import Method, Predict, Ref, Setup, State
from fedbench.models.backbone import Begin
from fedbench.options import Share, judged
from fedbench.types import ClientCost


@judged("fedavg")
def fedavg(
    setup: Setup,
    body: Begin = "pretrained",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
    local: bool = False,
    width: Share = 1.0,
) -> Method:
    """Each client trains all weights of body and classifier from the global model, and the server takes their mean
    (Algorithm 1).

    body: `pretrained`, as the backbone is, or `random`. The mean is weighted by |D_n|.
    With `train.regularizer: {fedprox: ...}` it is FedProx. Capacities and adapter have
    no say. With `evaluation.by: client` the global model is scored on everybody's images.

    local: with `evaluation.by: client`, score also the local models, as `accuracy/local`: a client's model as it sent
    it last, after its own local training and before any averaging (what FedV's tables show), the global one where it
    never sent any. One model for each client that took part lies on disk for that, and one more is in memory.

    width: below 1 a control for methods of unequal width, the smaller model of the first ceil(K width) of K hidden
    units of every layer, for everybody, and the one that is tested.
    """
    model, loss = trainable(setup, body), setup.component("objective", objective)
    model = narrowed(model, width) if width != 1 else model
    kept = local and setup.by_client

    def train(visit: Visit) -> tuple[float, Tensors | None]:
        def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | float]:
            return loss([model.logits(visit.weights, x)], y, visit.t), visit.pull()

        mean_loss = fit(setup, loss_of, [visit.weights], visit.batches(), visit.steps)
        return mean_loss, visit.weights if kept else None

    def price() -> ClientCost:
        return price_of(setup, model, OnLogits(loss))

    if not kept:
        return wholemodel(setup, model, train, price, aggregator)
    made = wholemodel(setup, model, train, price, aggregator, personal=lambda weights, own: Answer(model, own))
    answer = cast(Callable[..., Answer], made.predictor)

    def predictor(state: State, client: int | None = None) -> Predict:
        return answer(state) if client is None else Both(answer(state), answer(state, client))

    return replace(made, predictor=predictor)


@dataclass(frozen=True)
class Both:
    """The answers of the global model, and as `local` those of a client's own."""

    everybodys: Answer
    own: Answer

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        return {"": self.everybodys(x), "local": self.own(x)}


@hookimpl
def fedbench_register_methods(register):
    register(
        "fedavg",
        fedavg,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=2,
        later=["local", "width"],
        family="Whole models",
        paper="McMahan et al., FedAvg, AISTATS 2017, arXiv 1602.05629",
    )
