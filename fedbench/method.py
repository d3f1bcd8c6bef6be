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
    """A federated algorithm: three functions over an explicit state, and what its clients pay.

    Attributes:
        init: `init(generator) -> state`, nested dicts and lists of contiguous tensors and JSON scalars; no tensor
            occurs twice.
        round: `round(state, t, cohort, generator) -> (state, report)`. It must not change the state that it is given.
        predictor: `predictor(state, client=None) -> predict`, called once per evaluation. `predict(x)` takes images
            (B, 3, H, W) and returns logits (B, C), or several by name, the method's own answer first. It is valid
            until the next call of `round`, `predictor` or `at`.
        cost: `cost(capacity, t) -> ClientCost`, what one client of that capacity pays in round t; None for a client
            that does not take part. A `cost` with a third or fourth parameter is given the client's rank and width
            too, None where the scenario gives none.
        personal: Whether clients have personal models. `predictor` is then called with their numbers where the
            evaluation is by client.
        alone: Whether it trains by other means than `setup.engine`, so that one process computes it.
        sizes: What it offers clients that have devices, the smallest first. None: it has one size, and its clients
            hold all layers.
        at: `at(state, size, client=None) -> predict`, the model that a client of that size can run, made from the
            global one by the method's rule. None: there is no model but the global one.
        running: `running(size)`, bytes that a device needs to classify one image with that model. It returns None
            where the device cannot: the method has no model so small, or needs the server to answer.
        holds: `holds(capacity, t, rank)`, the layers that such a client would hold in round t if it were alone, for
            plans of suites whose clients keep frozen weights. None: its clients hold no frozen weights by layer.
        averages: `examples` or `uniform`, by which weights the server averages every number over the clients that
            train it and came back, and reads nothing else of uploads. None: it does otherwise.
        forward: Whether clients send what forward passes give, and no weights.
        allocates: `allocates(cohort, t, generator)`, the (N, L) layers that each client of a round trains, as far as
            that is known beforehand. None: its clients hold no layers.
        planned: `planned(cohort, t)`, what each client of a round pays where that depends on the others; `cost` is then
            that of a client alone. None: it does not.
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
    holds: Callable[[int, int, int | None], Sequence[int]] | None = None
    averages: str | None = None
    forward: bool = False
    allocates: Callable[[Cohort, int, Generator], Tensor] | None = None
    planned: Callable[[Cohort, int], list[ClientCost | None]] | None = None

    def price(self, capacity: int, t: int, rank: int | None = None, width: float | None = None) -> ClientCost | None:
        """Return what a client of that capacity pays in round t.

        Args:
            capacity: L_n.
            t: The round, from 0.
            rank: r_n, where the scenario gives ranks.
            width: The client's width, where the scenario gives widths.

        Returns:
            The cost; None for a client that does not take part.
        """
        return self.cost(capacity, t, *(rank, width)[: self._asks])

    def prices(self, cohort: Cohort, t: int) -> list[ClientCost | None]:
        """Return what each client of a cohort pays in round t."""
        if self.planned:
            return self.planned(cohort, t)
        L_n: list[int] = cohort.capacities.tolist()
        given = (cohort.ranks, cohort.widths)
        further = zip(*([None] * len(L_n) if sizes is None else sizes.tolist() for sizes in given), strict=True)
        return [self.price(capacity, t, *more) for capacity, more in zip(L_n, further, strict=True)]

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
    """Where clients keep personal tensors between rounds; a state refers to them by keys."""

    def put(self, tensors: Mapping[str, Tensor]) -> str:
        """Keep tensors, and return the key that names their content."""
        ...

    def get(self, key: str, device: str = "cpu") -> dict[str, Tensor]:
        """Return the tensors of a key."""
        ...


def _as_sent(uploads: Uploads, *_: Any) -> Uploads:
    return uploads


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Setup:
    """What a method is built from.

    Attributes:
        backbone: The frozen model without adapters and classifiers, cut into layers where that is possible.
        adapter: `adapter(backbone)` attaches the adapters.
        engine: `engine(model, start, plan, cohort, job) -> Uploads`, see `fedbench.engine`.
        scenario: Who could take part.
        train: The suite's `train` section, resolved. Its `optimizer` has the rates of the current round: read it in
            each.
        num_classes: C.
        image_size: H = W of the images.
        seed: The cell's seed.
        component: `component(kind, ref)` makes a component of the registry.
        store: Where clients' personal tensors are kept.
        device: Where models are, as PyTorch calls it.
        profile: `paper` or `reference`.
        fold: Whether a predictor may fold its adapters (`fedbench.models.adapter.fold`).
        by_client: Whether every client is tested separately, on images like its training images.
        precision: For a method that trains by other means than `engine`: `precision()` is the context in which models
            are called.
        receive: For the same methods: `receive(uploads, start, plan, cohort, t)` returns what arrives of uploads.
        proxy: `proxy()` returns the server's images (n, 3, H, W), prepared as clients' are, and their labels (n,), held
            out of training where the suite asks for it (`data.proxy`); else None.
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
