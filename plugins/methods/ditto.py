"""Ditto: a global model, and for every client one of its own that is pulled towards it (Li et al., ICML 2021, arXiv
2012.04221)."""

from __future__ import annotations

from torch import Tensor

from fedbench import hookimpl
from fedbench.families.regularizer import towards
from fedbench.families.wholemodel import Answer, OnLogits, Tensors, Visit, copies, fit, price_of, trainable, wholemodel
from fedbench.method import Method, Ref, Setup
from fedbench.models.backbone import Begin
from fedbench.options import Count, NotNegative, judged


@judged("ditto")
def ditto(
    setup: Setup,
    lam: NotNegative = 0.75,
    personal_epochs: Count | None = None,
    body: Begin = "pretrained",
    aggregator: Ref = "weighted_mean",
    objective: Ref = "cross_entropy",
) -> Method:
    """In addition to FedAvg's global model w every client keeps a model v_k of its own, trained on F_k(v) + lambda / 2
    ||v - w^t||^2 (Algorithm 1).

    lam: lambda, 0.75 in the comparison of FedV. personal_epochs: passes over its images that v_k takes in a round,
    within `max_steps` as w is; by default the local_epochs of w. w^t is the global model at the start of the round, as
    in Algorithm 1, and not the one the client has just trained. body: `pretrained`, as the backbone is, or `random`.
    v_k begins as the w^t of the first round that the client takes part in. Both take `train.optimizer`; the loss
    recorded is that of w.
    """
    model, loss = trainable(setup, body), setup.component("objective", objective)
    epochs = setup.train["local_epochs"] if personal_epochs is None else personal_epochs

    def train(visit: Visit) -> tuple[float, Tensors]:
        def of_global(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | float]:
            return loss([model.logits(visit.weights, x)], y, visit.t), visit.pull()

        def of_personal(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return loss([model.logits(v, x)], y, visit.t), towards(v, visit.start, lam)

        mean_loss = fit(setup, of_global, [visit.weights], visit.batches(), visit.steps)
        v = copies(visit.start if (own := visit.own()) is None else own)
        fit(setup, of_personal, [v], visit.batches(), visit.personal_steps(epochs))
        return mean_loss, v

    return wholemodel(
        setup,
        model,
        train,
        # While v is trained, w^t and the w to be sent are there too.
        lambda: price_of(setup, model, OnLogits(loss), personal_epochs=epochs, extra_models=2),
        aggregator,
        personal=lambda weights, own: Answer(model, own),
    )


@hookimpl
def fedbench_register_methods(register):
    register(
        "ditto",
        ditto,
        ignores=["capacities", "ranks", "widths", "adapter"],
        look=1,
        family="Whole models",
        paper="Li et al., Ditto, ICML 2021, arXiv 2012.04221",
    )
