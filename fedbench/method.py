"""The Method contract: what the runner knows of an algorithm, and what an algorithm is built from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from torch import Generator, Tensor

from fedbench.models.backbone import Blocks, Plain
from fedbench.types import ClientCost, Cohort, Report, Scenario, Size, Uploads

State = dict[str, Any]
Predict = Callable[[Tensor], Tensor | Mapping[str, Tensor]]
Ref = str | Mapping[str, Any] | Callable[..., Any]  # a component as a suite names it, or the thing itself


@dataclass(frozen=True)
class Method:
    """A federated algorithm as three functions over an explicit state, and what its clients pay.

    init(generator) -> state: nested dicts and lists of contiguous tensors and JSON scalars, no tensor twice.
    round(state, t, cohort, generator) -> (state, report): must not change the state it is given.
    predictor(state, client=None) -> predict: called once per evaluation, for the global model; predict(x (B, 3, H, W))
    gives logits (B, C), or several by name, the method's own answer first. It is valid until the next call of `round`,
    `predictor` or `at`. cost(capacity, t) -> ClientCost: what one client of that capacity pays in round t; None for one
    that takes no part; cost(capacity, t, rank) and cost(capacity, t, rank, width), where it takes so many, is told the
    client's rank and width too, None where the scenario gives none. personal: whether clients have models of their own;
    predictor is then asked with their numbers where the evaluation is by client. alone: whether it trains by other
    means than `setup.engine`, so that one process computes it. sizes: what it offers clients that have devices, the
    smallest first, each priced by `price`; None: it has one size, and its clients are told that they can hold all
    layers. at(state, size, client=None) -> predict: the model that a client of that size can run, made of the global
    one by the method's own rule; None where it is its one model alone. running(size): bytes that a device needs to
    answer one image with that, None where it cannot: the method has no model so small, or answers with the server's
    help alone; without it nobody knows.
    """

    init: Callable[[Generator], State]
    round: Callable[[State, int, Cohort, Generator], tuple[State, Report]]
    predictor: Callable[..., Predict]
    cost: Callable[..., ClientCost | None]
    personal: bool = False
    alone: bool = False
    sizes: Sequence[Size] | None = None
    at: Callable[..., Predict] | None = None
    running: Callable[[Size], int | None] | None = None

    def price(self, capacity: int, t: int, rank: int | None = None, width: float | None = None) -> ClientCost | None:
        """What a client of that capacity, and of that rank and width where the scenario gives them, pays in round t."""
        return self.cost(capacity, t, *(rank, width)[: self._asks])

    def prices(self, cohort: Cohort, t: int) -> list[ClientCost | None]:
        """What each client of a cohort pays in round t."""
        L_n: list[int] = cohort.capacities.tolist()
        given = (cohort.ranks, cohort.widths)
        beside = zip(*([None] * len(L_n) if sizes is None else sizes.tolist() for sizes in given), strict=True)
        return [self.price(capacity, t, *more) for capacity, more in zip(L_n, beside, strict=True)]

    @cached_property
    def _asks(self) -> int:
        """How many arguments `cost` takes after the first two, at most two."""
        for more in (2, 1):
            try:
                inspect.signature(self.cost).bind(1, 0, *[None] * more)
            except TypeError:
                continue
            return more
        return 0


class Store(Protocol):
    """Where clients keep tensors of their own between rounds: a state refers to them by keys, which name their
    content."""

    def put(self, tensors: Mapping[str, Tensor]) -> str: ...

    def get(self, key: str, device: str = "cpu") -> dict[str, Tensor]: ...


def _as_sent(uploads: Uploads, *_: Any, later: Any = None) -> Uploads:
    return uploads


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Setup:
    """What a method is built from.

    backbone: the frozen model, yet without adapters or classifiers; cut into layers where that can be ·
    adapter(backbone) attaches the adapters · engine: see `fedbench.engine` · train: the suite's `train` section,
    resolved · component(kind, ref): makes a component of the registry · fold: whether a predictor may fold its
    adapters (`fedbench.models.adapter.fold`) · by_client: whether every client is tested by itself, on images like its
    own · proxy(): the server's own images (n, 3, H, W), prepared as clients' are, and their labels (n,), held out of
    everybody's training where the suite asks for it (`data.proxy`), or None · store: where clients' own tensors are
    kept. For a method that trains by other means than `engine`: precision() is the context in which models are called ·
    receive(uploads, start, plan, cohort, t) is what arrives of uploads; given a list as `later`, it puts there what
    waiting for a GPU alone could tell, bool tensors, and takes as fine what these may say is not.
    """

    backbone: Blocks | Plain
    adapter: Callable[[Blocks], None]
    engine: Callable[..., Uploads]
    scenario: Scenario
    train: Mapping[str, Any]
    num_classes: int
    image_size: int
    seed: int
    component: Callable[[str, Any], Any]
    store: Store
    device: str = "cpu"
    profile: str = "paper"
    fold: bool = False
    by_client: bool = False
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext
    receive: Callable[..., Uploads] = _as_sent
    proxy: Callable[[], tuple[Tensor, Tensor] | None] = _nothing
