"""How good the global model is: every metric on every domain's test images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.team import ALONE, Team
from fedbench.method import Predict
from fedbench.pixels import Pixels

EVALUATIONS = 5  # about how often over a run, where the suite does not say

Rows = list[dict[str, Any]]
Metric = Callable[[Tensor, Tensor], float]


class Evaluation:
    """The test images of a cell, and what is asked of them.

    batch_size: images of a pass · mixed: whether a pass may hold images of several domains, which saves the
    short ones at the end of each.
    """

    def __init__(
        self, test: Pixels, domains: Sequence[str], metrics: Mapping[str, Metric], batch_size: int, mixed: bool
    ) -> None:
        self.test, self.domains, self.metrics = test, domains, metrics
        by_domain = [np.flatnonzero(test.images.domain == d) for d in range(len(domains))]
        self.sizes = [len(indices) for indices in by_domain]
        parts = [np.concatenate(by_domain)] if mixed else by_domain
        self.passes = [part[i : i + batch_size] for part in parts for i in range(0, len(part), batch_size)]

    @torch.no_grad()
    def rows(self, t: int, predict: Predict, team: Team = ALONE) -> Rows:
        """The rows of eval.parquet after round t, for the global model (client -1)."""

        def outputs(i: int) -> dict[str, Tensor]:
            logits = predict(self.test(self.passes[i])[0])
            named = logits if isinstance(logits, Mapping) else {"": logits}
            return {name: value.float().cpu() for name, value in named.items()}

        parts = team.share([len(indices) for indices in self.passes], outputs)
        y = torch.from_numpy(self.test.images.y[np.concatenate(self.passes)]).split(self.sizes)
        rows = []
        for d, domain in enumerate(self.domains):
            for i, output in enumerate(parts[0]):  # the method's own answer first
                logits = torch.cat([part[output] for part in parts]).split(self.sizes)[d]
                for metric, score in self.metrics.items():
                    rows.append(
                        {
                            "round": t,
                            "split": "test",
                            "domain": domain,
                            "client": -1,
                            "metric": metric if i == 0 else f"{metric}/{output}",
                            "value": float(score(logits, y[d])),
                            "examples": self.sizes[d],
                        }
                    )
        return rows


def evaluated_rounds(rounds: int, every: int | None) -> set[int]:
    """The rounds (from 1) after which the model is tested: the last, and each `every`-th before it (default: a
    fifth of the run)."""
    step = every or max(1, rounds // EVALUATIONS)
    return set(range(rounds, 0, -step))
