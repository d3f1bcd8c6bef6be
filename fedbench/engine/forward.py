"""Clients that compute forward passes alone: losses where their weights are, and derivatives along a direction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedbench.models.adapter import seed_dropout
from fedbench.models.backbone import Blocks
from fedbench.models.draws import Draws
from fedbench.models.lowrank import scaled
from fedbench.models.tokens import TokenStates, counted
from fedbench.types import Exit, Job

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ForwardClient:
    """What a rule of forward-only training has of a client: `Job.forward` is called with it, and moves the parameters.

    Attributes:
        model: With the client's tensors loaded.
        parameters: Those that it trains, by place.
        mask: Called after a move; undoes it for coordinates that the client does not train.
        layers: Of the model that it runs, ascending.
        exits: Its classifiers.
        job: How it trains; the rate of this round is `job.optimizer["lr"]`.
        id: Its number.
        scale: The factor of its low-rank products; None for the adapter's own.
        draws: Of its dropout.
        steps: How many it takes.
        batches: Called without arguments; yields as many batches.
    """

    model: Blocks
    parameters: Mapping[str, nn.Parameter]
    mask: Callable[[], None]
    layers: Sequence[int]
    exits: Sequence[Exit]
    job: Job
    id: int
    scale: float | None
    draws: Draws
    steps: int
    batches: Callable[[], Iterator[Batch]]

    @torch.no_grad()
    def loss(self, batch: Batch) -> float:
        """Return the mean loss of a batch where the parameters are, without dropout."""
        x, y = batch
        with self._running(drops=False):
            parts = [
                counted(y[part]) / counted(y) * self._objective(self._answers(x[part]), y[part]).item()
                for part in self.draws.parts(len(y), self.job.micro_batch)
            ]
        return sum(parts)

    @torch.no_grad()
    def derivative(self, batch: Batch, v: Mapping[str, Tensor]) -> tuple[float, float]:
        """Return the mean loss of a batch and its derivative along v, by one pass in forward mode, with dropout.

        The answers and their tangents come of `torch.func.jvp`; the loss's own gradient, which needs no activation, is
        taken at the answers. v: by place, for every parameter.
        """
        x, y = batch
        names = self._names()
        w = {names[place]: parameter.detach() for place, parameter in self.parameters.items()}
        direction = {names[place]: v[place] for place in self.parameters}
        loss = slope = 0.0
        with self._running(drops=True), sdpa_kernel(SDPBackend.MATH):  # no other kernel has a forward mode
            for part in self.draws.parts(len(y), self.job.micro_batch):

                def answers(w: dict[str, Tensor], part: slice = part) -> list[Tensor]:
                    made = functional_call(self.model, w, (x[part], self.layers, self.exits))
                    return [one.states if isinstance(one, TokenStates) else one for one in made]

                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)  # of what torch itself imports for the first one
                    values, tangents = jvp(answers, (w,), (direction,))[:2]
                share = counted(y[part]) / counted(y)
                one, gradients = self._loss_at(values, y[part])
                loss += share * one
                slope += share * sum(float((g * along).sum()) for g, along in zip(gradients, tangents, strict=True))
        return loss, slope

    def _loss_at(self, values: Sequence[Tensor], y: Tensor) -> tuple[float, Sequence[Tensor]]:
        """The loss at these answers, and its gradient for each of them."""
        with torch.enable_grad():
            leaves = [value.detach().requires_grad_() for value in values]
            given: list[Any] = list(leaves)
            if self.model.predicts_tokens:
                given = [TokenStates(leaf, self.model.decoder.vocabulary) for leaf in leaves]
            loss = self._objective(given, y)
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        found = [torch.zeros_like(v) if g is None else g for g, v in zip(gradients, values, strict=True)]
        return loss.item(), found

    def _answers(self, x: Tensor) -> list[Any]:
        made: list[Any] = self.model(x, self.layers, self.exits)
        return made

    def _objective(self, answers: list[Any], y: Tensor) -> Tensor:
        return self.job.objective(answers, y, self.job.t)

    def _names(self) -> dict[str, str]:
        """What the model calls the parameters, by place."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return {place: names[id(parameter)] for place, parameter in self.parameters.items()}

    def _running(self, drops: bool) -> Any:
        seed_dropout(self.model, self.draws if drops else None)
        return scaled(self.model, self.scale)
