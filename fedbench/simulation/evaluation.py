"""How good the models are: every metric on every domain's test and validation images, or on every client's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.process_group import ALONE, ProcessGroup
from fedbench.method import Predict
from fedbench.models.globalmodel import GlobalModel
from fedbench.results.metric_direction import VALIDATION
from fedbench.simulation.batches import Inputs
from fedbench.simulation.failure_reason import Diverged
from fedbench.simulation.federated_data import TEST, EvalSplit
from fedbench.types import GLOBAL

Metric = Callable[[Tensor, Tensor], float]
Answers = Mapping[str, Sequence[Tensor]]  # logits (n, classes) on each split, by output; "" is the method's own


@dataclass(frozen=True)
class Score:
    """What a metric says of a model's answers on a split. metric: with the answer's name, where it is not the
    method's own, as in `accuracy/last`."""

    split: EvalSplit
    metric: str
    value: float


@dataclass(frozen=True)
class Right:
    """Which test images are answered right: their positions (n,) in the test split, in order, and by output's name,
    "" for the method's own answer, whether each is (n,) bool."""

    positions: np.ndarray
    by_output: Mapping[str, np.ndarray]


class Pass(NamedTuple):
    """Images that a model answers at once: whose model, and their positions (b,) in which images."""

    client: int
    indices: np.ndarray
    split: str


class Evaluation:
    """The test and validation images of a cell, of so many classes, and what is asked of them.

    train: where positions of validation images point · splits: what is scored, test images and validation images each
    in a row · batch_size: images of a pass · mixed: whether a pass may hold images of several splits, which saves the
    short ones at the end of each · personal: whether the clients' models differ; a client's splits are then answered
    one after the other, so that its model is made once.
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
        self.passes = [
            Pass(client, indices[i : i + batch_size], split)
            for client, indices, split in parts
            for i in range(0, len(indices), batch_size)
        ]

    def only(self, split: str) -> Evaluation:
        """The same of the images of one split."""
        splits = [one for one in self.splits if one.split == split]
        return Evaluation(self.test, splits, self.metrics, *self._how, self.images[VALIDATION], classes=self.classes)

    def scores(self, predictor: Callable[[int | None], Predict], team: ProcessGroup = ALONE) -> list[Score]:
        """Every metric of every answer on every split, see `answers`."""
        return self.scored(self.answers(predictor, team))

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
            given = answered(latest(None if client == GLOBAL else client), self.images[split], indices)
            return _logits(given, len(indices), self.classes)

        parts = team.share([len(one.indices) for one in self.passes], outputs)
        whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        here = torch.cat(list(whole.values())).cpu()  # waits for a GPU once
        if none := unanswered(here):
            raise Diverged(f"{none:,} of {len(here):,} answers to test and validation images are not finite")
        found = zip(whole, here.chunk(len(whole)), strict=True)
        return {name if i else "": logits.split(self.sizes) for i, (name, logits) in enumerate(found)}

    def scored(self, answers: Answers) -> list[Score]:
        """Every metric of every answer on every split."""
        return [
            Score(split, f"{metric}/{output}" if output else metric, float(score(logits[s], self._labels(split))))
            for s, split in enumerate(self.splits)
            for output, logits in answers.items()
            for metric, score in self.metrics.items()
        ]

    def right(self, answers: Answers) -> Right:
        """Which test images are answered right; of clients' own models, by that of the client whose they are."""
        tested = [s for s, split in enumerate(self.splits) if split.split == TEST]
        positions = np.concatenate([self.splits[s].indices for s in tested])
        order = np.argsort(positions)
        hits = {
            output: [(logits[s].argmax(1) == self._labels(self.splits[s])).numpy() for s in tested]
            for output, logits in answers.items()
        }
        return Right(positions[order], {output: np.concatenate(each)[order] for output, each in hits.items()})

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
