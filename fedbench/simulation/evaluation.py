"""How good the models are: the global one or clients' own, at every size, and which size each client can run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.process_group import ALONE, ProcessGroup
from fedbench.method import Method, Predict, State
from fedbench.models.globalmodel import GlobalModel
from fedbench.results.scores import VALIDATION
from fedbench.simulation.batches import Inputs
from fedbench.simulation.failure_reason import Diverged
from fedbench.simulation.federated_data import TEST, EvalSplit
from fedbench.simulation.federation import Federation
from fedbench.simulation.next_tokens import Continuations, token_rows
from fedbench.types import GLOBAL, MIXED, Client, Scenario, Size
from fedbench.types.clients import rate_of
from fedbench.types.metric import measured

Metric = Callable[[Tensor, Tensor], float]
# Logits (n, classes) on each split, by output, of next tokens `heads.example_rows`; "" is the method's own.
Answers = Mapping[str, Sequence[Tensor]]


@dataclass(frozen=True)
class Score:
    """What a metric says of a model's answers on a split. metric: with the answer's name, where it is not the
    method's own, as in `accuracy/last`."""

    split: EvalSplit
    metric: str
    value: float


class Pass(NamedTuple):
    """Images that a model answers at once: whose model, and their positions (b,) in which images."""

    client: int
    indices: np.ndarray
    split: str


class Evaluation:
    """The test and validation images of a cell, of so many classes, and what is asked of them.

    Attributes:
        train: where positions of validation images point.
        splits: what is scored, test images and validation images each in a row.
        batch_size: images of a pass.
        mixed: whether a pass may hold images of several splits, which saves the short ones at the end of each.
        personal: whether the clients' models differ; a client's splits are then answered one after the other, so that
            its model is made once.
    """

    def __init__(
        self,
        test: Inputs,
        splits: Sequence[EvalSplit],
        metrics: Mapping[str, Metric],
        batch_size: int,
        mixed: bool,
        personal: bool = False,
        train: Inputs | None = None,
        *,
        classes: int,
    ) -> None:
        self.test, self.images, self.metrics = test, {TEST: test, VALIDATION: train or test}, metrics
        self.classes, self._how = classes, (batch_size, mixed, personal)
        self.splits = sorted(splits, key=lambda split: split.client) if personal else list(splits)
        self.sizes = [len(split.indices) for split in self.splits]
        parts = [Pass(split.client if personal else GLOBAL, split.indices, split.split) for split in self.splits]
        if mixed and all(part.client == GLOBAL for part in parts):
            of_split = {split: [p.indices for p in parts if p.split == split] for split in {p.split: 0 for p in parts}}
            parts = [Pass(GLOBAL, np.concatenate(indices), split) for split, indices in of_split.items()]
        orders = [self.images[part.split].order(part.indices) for part in parts]
        first = np.cumsum([0, *map(len, orders)])
        # from the order in which they pass, which saves padding, to that of the splits
        self.back = np.argsort(np.concatenate([start + own for start, own in zip(first, orders, strict=False)]))
        parts = [one._replace(indices=one.indices[own]) for one, own in zip(parts, orders, strict=True)]
        self.passes = [
            Pass(client, indices[i : i + batch_size], split)
            for client, indices, split in parts
            for i in range(0, len(indices), batch_size)
        ]

    def only(self, split: str) -> Evaluation:
        """The same of the images of one split."""
        splits = [one for one in self.splits if one.split == split]
        return Evaluation(self.test, splits, self.metrics, *self._how, self.images[VALIDATION], classes=self.classes)

    @torch.no_grad()
    def answers(self, predictor: Callable[[int | None], Predict], team: ProcessGroup = ALONE) -> Answers:
        """What the models say to the images of every split.

        predictor(client) answers for that client's own model, predictor(None) for the global one; an answer is valid
        until the next is asked for. Raises ValueError for what are no logits of these images, Diverged where they are
        no numbers.
        """
        latest = functools.lru_cache(maxsize=1)(predictor)

        def outputs(i: int) -> dict[str, Tensor]:
            client, indices, split = self.passes[i]
            predict, images = latest(None if client == GLOBAL else client), self.images[split]
            if isinstance(images, Continuations):
                return token_rows(predict, images, indices, self.metrics)
            return _logits(answered(predict, images, indices), len(indices), self.classes)

        parts = team.share([len(one.indices) for one in self.passes], outputs)
        whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        here = torch.cat(list(whole.values())).cpu()  # waits for a GPU once
        if none := unanswered(here):
            raise Diverged(f"{none:,} of {len(here):,} answers to test and validation examples are not finite")
        found = zip(whole, (logits[self.back] for logits in here.chunk(len(whole))), strict=True)
        return {name if i else "": logits.split(self.sizes) for i, (name, logits) in enumerate(found)}

    def scored(self, answers: Answers) -> list[Score]:
        """Every metric of every answer on every split."""
        return [
            Score(
                split, f"{metric}/{output}" if output else metric, measured(score, [(logits[s], self._labels(split))])
            )
            for s, split in enumerate(self.splits)
            for output, logits in answers.items()
            for metric, score in self.metrics.items()
        ]

    @property
    def of_tokens(self) -> bool:
        """Whether what is answered are next tokens."""
        return isinstance(self.test, Continuations)

    def _labels(self, split: EvalSplit) -> Tensor:
        return torch.from_numpy(self.images[split.split].labelled.y[split.indices])


def unanswered(logits: Tensor) -> int:
    """How many images have logits (n, classes) that are not all finite."""
    return int((~logits.isfinite()).any(1).sum())


def _logits(given: Any, images: int, classes: int) -> dict[str, Tensor]:
    """What a predictor gave, by output. Raises ValueError where that is not (images, classes) each."""
    named = given if isinstance(given, Mapping) else {"": given}
    for name, logits in named.items():
        if not isinstance(logits, Tensor) or logits.shape != (images, classes):
            found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            what = f"a predictor's {name!r}" if name else "a predictor's answer"
            raise ValueError(
                f"{what} must be logits of shape {(images, classes)}, for {images} images of {classes} "
                f"classes, not {found}"
            )
    if not named:
        raise ValueError("a predictor must give logits, or several by name; it gave none")
    return {name: logits.float() for name, logits in named.items()}


def answered(predict: Predict, images: Inputs, indices: np.ndarray) -> Tensor | Mapping[str, Tensor]:
    """What is predicted of these images: from features where those are kept and nothing else is read."""
    constant = isinstance(predict, GlobalModel) and predict.reads_features
    x, _ = images.features(indices) if constant else images(indices)
    return predict(x)


@dataclass(frozen=True)
class Runnable:
    """A size that the model can be run at.

    Attributes:
        memory: bytes that a device needs to answer one image, None where that is unknown.
        alone: whether it can answer without the server.
    """

    size: Size
    memory: int | None
    alone: bool = True


class Deployment:
    """The sizes of a method, and the devices of a federation.

    t: the round, counted from 0, after which the model is deployed; clients have the sizes of that round.
    """

    def __init__(self, method: Method, federation: Federation, t: int) -> None:
        self.method, self.federation, self.t = method, federation, t

    @cached_property
    def sizes(self) -> list[Runnable]:
        """Those that there is a model for, the smallest first; the one model where the method has no other."""
        offered, running = offered_by(self.method, self.federation.scenario), self.method.running
        if running is None:
            return [Runnable(size, None) for size in offered]
        found = [Runnable(size, memory) for size in offered if (memory := running(size)) is not None]
        return found or [Runnable(offered[-1], None, alone=False)]

    def predictor(self, state: State, one: Runnable) -> Callable[[int | None], Predict]:
        """Of what answers at that size, see `Method.predictor`."""
        if self.method.at is None:
            return functools.partial(self.method.predictor, state)
        return functools.partial(self.method.at, state, one.size)

    def taken_by(self, client: int) -> Runnable | None:
        """The largest size that a client can run, None where it can run none."""
        return max((one for one in self.sizes if self._fits(one, client)), key=lambda one: one.size.order, default=None)

    def _fits(self, one: Runnable, client: int) -> bool:
        """Where clients have devices, by their memory, or where it is unknown what the model takes, by what they train;
        else by the size that the scenario gives them."""
        federation = self.federation
        if not one.alone:
            return False
        if federation.devices is not None:
            if one.memory is not None:
                return one.memory <= federation.devices[client].memory
            trained = federation.fitted[client] if federation.fitted is not None else None
            return trained is not None and self._within(one.size, trained)
        sizes = (federation.capacities, federation.ranks, federation.widths)
        L_n, r_n, width = (None if given is None else given.of(self.t, client) for given in sizes)
        return self._within(one.size, Size(int(L_n or 0), None if r_n is None else int(r_n), width))

    def _within(self, size: Size, given: Size) -> bool:
        """Ranks and widths go by themselves where clients are given such, as in training; by capacity else."""
        if size.width is not None:
            return rate_of([size.width], given.capacity, self.federation.num_layers, given.width) is not None
        if size.rank is not None and given.rank is not None:
            return size.rank <= given.rank
        return size.capacity <= given.capacity


def offered_by(method: Method, scenario: Scenario) -> list[Size]:
    """The sizes at which a method's model may be run, the smallest first, whether or not there is a model for each.

    Those that it offers, and the ranks that the scenario gives; where it gives none, methods of unequal ranks hold the
    first layers with all terms.
    """
    L = scenario.num_layers
    sizes = set(method.sizes or [Size(L)])
    if any(size.rank is not None for size in sizes):
        given = {Size(L, rank) for low, high in scenario.different("ranks") for rank in range(low, high + 1)}
        sizes = sizes | given if given else {Size(depth) for depth in range(1, L + 1)}
    found = sorted(sizes, key=attrgetter("order"))
    return found if method.at is not None else found[-1:]


class Scored:
    """What a model scores, by client where each is tested, else by domain."""

    def __init__(self, scores: Iterable[Score], domains: Sequence[str]) -> None:
        self.domains = domains
        self.by: dict[int | str, dict[str, float]] = {}
        for score in scores:
            split = score.split
            place = split.domain if split.client == GLOBAL else split.client
            self.by.setdefault(place, {})[score.metric] = score.value

    def of(self, client: Client) -> dict[str, float]:
        """By metric, what it scores for a client: on its own test images, or on those of its domain, or in the mean
        over domains where it has images of several. Empty where it has no test images."""
        if client.id in self.by:
            return self.by[client.id]
        if client.domain != MIXED:
            return self.by.get(self.domains[client.domain], {})
        found = [scores for place, scores in self.by.items() if isinstance(place, str)]
        return {metric: float(np.mean([one[metric] for one in found])) for metric in (found[0] if found else ())}
