"""The Method contract: what the runner knows of an algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from fedbench.models.cost import ClientCost
from fedbench.types import Cohort, Report

State = dict[str, Any]
Predict = Callable[[Tensor], Tensor | Mapping[str, Tensor]]


@dataclass(frozen=True)
class Method:
    """A federated algorithm as three functions over an explicit state, and what its clients pay.

    init(generator) -> state: nested dicts and lists of contiguous tensors and JSON scalars, no tensor twice.
    round(state, t, cohort, generator) -> (state, report): must not change the state it is given.
    predictor(state, client=None) -> predict: called once per evaluation, for the global model; predict(x (B, 3, H,
    W)) gives logits (B, C), or several by name, the method's own answer first. It is valid until the next call of
    `round` or `predictor`. cost(capacity, t) -> ClientCost: what one client of that capacity pays in round t; None for
    one that takes no part. personal: whether clients have models of their own; predictor is then asked with their
    numbers where the evaluation is by client. alone: whether it trains by other means than `setup.engine`, so that
    one process computes it.
    """

    init: Callable[[Generator], State]
    round: Callable[[State, int, Cohort, Generator], tuple[State, Report]]
    predictor: Callable[..., Predict]
    cost: Callable[[int, int], ClientCost | None]
    personal: bool = False
    alone: bool = False
