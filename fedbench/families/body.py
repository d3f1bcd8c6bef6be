"""A whole model: a body, and the classifier at its end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn
from torch.func import functional_call

from fedbench.method import Setup
from fedbench.models.backbone import HEAD, Blocks, Plain
from fedbench.models.counting import counted, to_run_all
from fedbench.models.shape_cache import identity, once, parameters_of
from fedbench.models.weight_init import begin
from fedbench.seeding import seed_of
from fedbench.types import Objective

Found = TypeVar("Found")
Tensors = Mapping[str, Tensor]


class WholeModel(nn.Module):
    """A body and the classifier at its end, called with the weights that a state holds.

    The module's own weights remain those that the backbone came with. Names of weights are `model.<timm's name>` and
    `head.weight`, `head.bias`. cut: what a narrower model is besides the shapes of its weights, see `narrow`.
    """

    def __init__(self, body: Blocks | Plain, cut: Hashable = None) -> None:
        super().__init__()
        self.body, self.cut = body, cut

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D)"""
        return self.body.pooled(x)

    def weights(self) -> dict[str, nn.Parameter]:
        return {name.removeprefix("classifiers."): p for name, p in self.body.named_parameters()}

    def features(self, weights: Tensors, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D)"""
        own = {f"body.{name}": value for name, value in weights.items() if name.startswith("model.")}
        z: Tensor = functional_call(self, own, (x,))
        return z

    def logits(self, weights: Tensors, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C)"""
        return read(weights, HEAD, self.features(weights, x))

    def to_train(self, loss: ModelLoss, image_size: int) -> tuple[int, int]:
        """FLOPs of one image through the loss and its backward pass, and bytes of the activations saved; counted once
        for models that are equal, but where a loss is a closure: it would be kept with all that it holds."""

        def anew() -> tuple[int, int]:
            return counted(self, loss, image_size)

        if getattr(loss, "__closure__", None):
            return anew()
        which = (OnLogits, identity(loss.objective)) if isinstance(loss, OnLogits) else loss
        return self._once(("to train", which, image_size), anew)

    def to_run(self, image_size: int) -> int:
        """Bytes that a device needs to answer one image with body and classifier."""
        weights = [w for name, w in self.weights().items() if name.startswith(("model.", f"{HEAD}."))]

        def anew() -> int:
            return to_run_all(self, weights, lambda twin, x: twin.logits(twin.weights(), x), image_size)

        return self._once(("to run", image_size), anew)

    def _once(self, key: tuple[Hashable, ...], find: Callable[[], Found]) -> Found:
        return once(self.body.origin, parameters_of(self), (*key, self.cut), find)


ModelLoss = Callable[[WholeModel, Tensor, Tensor], Tensor]  # of x and y, by a model's own weights


@dataclass(frozen=True)
class OnLogits:
    """The loss that an objective of logits alone gives a whole model with its own weights."""

    objective: Objective

    def __call__(self, model: WholeModel, x: Tensor, y: Tensor) -> Tensor:
        return self.objective([model.logits(model.weights(), x)], y, 0)


def read(weights: Tensors, classifier: str, features: Tensor) -> Tensor:
    """The logits (B, C) of a classifier among the weights, of features (B, D)."""
    return nn.functional.linear(features, weights[f"{classifier}.weight"], weights[f"{classifier}.bias"])


def trainable(setup: Setup, start: str = "pretrained") -> WholeModel:
    """The backbone with a classifier, all of its weights to be trained. The adapter of the suite is left aside.

    start: `pretrained`, as the backbone is, or `random`, drawn anew. Raises UserError.
    """
    body = setup.backbone.requires_grad_(True)
    begin(body, "body", start, seed_of(setup.seed, use="body"))
    body.add_classifier(HEAD, setup.num_classes)
    return WholeModel(body.to(setup.device).eval())
