"""FedAvg: everybody trains the whole model, and the server averages it (McMahan et al., AISTATS 2017, arXiv
1602.05629)."""

from __future__ import annotations

from torch import Tensor

from fedbench import hookimpl
from fedbench.families.wholemodel import Visit, WholeModel, fit, price_of, trainable, wholemodel
from fedbench.method import Method, Ref, Setup


def fedavg(
    setup: Setup, body: str = "pretrained", aggregator: Ref = "weighted_mean", objective: Ref = "cross_entropy"
) -> Method:
    """Each client trains all weights of body and classifier from the global model, and the server takes their mean
    (Algorithm 1).

    body: `pretrained`, as the backbone is, or `random`. The mean is weighted by |D_n|.
    With `train.regularizer: {fedprox: ...}` it is FedProx. Capacities and adapter have
    no say. Nobody has a model of his own: with `evaluation.by: client` the global one is scored on everybody's images.
    """
    model, loss = trainable(setup, body), setup.component("objective", objective)

    def train(visit: Visit) -> tuple[float, None]:
        def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | float]:
            return loss([model.logits(visit.weights, x)], y, visit.t), visit.pull()

        return fit(setup, loss_of, [visit.weights.values()], visit.batches(), visit.steps), None

    def one_image(model: WholeModel, x: Tensor, y: Tensor) -> Tensor:
        return loss([model.logits(model.weights(), x)], y, 0)

    return wholemodel(setup, model, train, lambda: price_of(setup, model, one_image), aggregator)


@hookimpl
def fedbench_register_methods(register):
    register("fedavg", fedavg)
