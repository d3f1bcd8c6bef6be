"""How good the models are: every metric on every domain's test images, or on every client's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbench.cell.pixels import Pixels
from fedbench.cell.shares import Share
from fedbench.engine.team import ALONE, Team
from fedbench.method import Predict
from fedbench.types import GLOBAL

EVALUATIONS = 5  # about how often over a run, where the suite does not say

Metric = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Score:
    """What a metric says of a model's answers on a share. metric: with the answer's name, where it is not the
    method's own, as in `accuracy/last`."""

    share: Share
    metric: str
    value: float


class Evaluation:
    """The test images of a cell, and what is asked of them.

    shares: what is scored, by whom · batch_size: images of a pass · mixed: whether a pass may hold images of several
    shares, which saves the short ones at the end of each · personal: whether the clients' models differ.
    """

    def __init__(
        self,
        test: Pixels,
        shares: Sequence[Share],
        metrics: Mapping[str, Metric],
        batch_size: int,
        mixed: bool,
        personal: bool = False,
    ) -> None:
        self.test, self.shares, self.metrics = test, shares, metrics
        self.sizes = [len(share.indices) for share in shares]
        parts = [(share.client if personal else GLOBAL, share.indices) for share in shares]
        if mixed and all(client == GLOBAL for client, _ in parts):
            parts = [(GLOBAL, np.concatenate([indices for _, indices in parts]))]
        self.passes = [
            (client, indices[i : i + batch_size])
            for client, indices in parts
            for i in range(0, len(indices), batch_size)
        ]

    @torch.no_grad()
    def scores(self, predictor: Callable[[int | None], Predict], team: Team = ALONE) -> list[Score]:
        """Every metric of every answer on every share.

        predictor(client) answers for that client's own model, predictor(None) for the global one; an answer is valid
        until the next is asked for.
        """
        latest = functools.lru_cache(maxsize=1)(predictor)

        def outputs(i: int) -> dict[str, Tensor]:
            client, indices = self.passes[i]
            logits = latest(None if client == GLOBAL else client)(self.test(indices)[0])
            named = logits if isinstance(logits, Mapping) else {"": logits}
            return {name: value.float().cpu() for name, value in named.items()}

        parts = team.share([len(indices) for _, indices in self.passes], outputs)
        y = torch.from_numpy(self.test.images.y[np.concatenate([indices for _, indices in self.passes])])
        labels = y.split(self.sizes)
        answers = {name: torch.cat([part[name] for part in parts]).split(self.sizes) for name in parts[0]}
        return [
            Score(share, metric if i == 0 else f"{metric}/{output}", float(score(logits[s], labels[s])))
            for s, share in enumerate(self.shares)
            for i, (output, logits) in enumerate(answers.items())  # the method's own answer first
            for metric, score in self.metrics.items()
        ]


def evaluated_rounds(rounds: int, every: int | None, at: Sequence[int] | str | None = None) -> set[int]:
    """The rounds (from 1) after which the model is tested: the last, and each `every`-th before it (default: a
    fifth of the run).

    at: instead, the last and these of them; `reference`, as FedRA's released code has it: the 21st, the 41st and so on,
    and the last four.
    """
    if isinstance(at, str):
        return {*range(21, rounds + 1, 20), *range(max(1, rounds - 3), rounds + 1)}
    if at is not None:
        return {rounds, *(t for t in at if t < rounds)}
    step = every or max(1, rounds // EVALUATIONS)
    return set(range(rounds, 0, -step))
