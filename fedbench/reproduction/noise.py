"""How far apart two results may be and pass for the same: what seeds do anyway.

The noise of a metric in a scenario is the standard deviation s over seeds, pooled over its methods (of the source) with
two seeds or more; where a scenario has none, over those of its suite. Two seeds of one method differ by sqrt(2) s; a
difference up to t sqrt(2) s is within noise, t being the quantile of Student's distribution with the pooled degrees of
freedom at which, of all differences that are judged, any is beyond it in 1 of 20 cases by chance (Bonferroni). The same
seed on another machine should come much closer. Our definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import variance

from fedbench.report.statistics.student import quantile
from fedbench.reproduction.told import Told

LEVEL = 0.05


class Noise:
    """Of the cells of a source, all of them, whatever is run again."""

    def __init__(self, cells: Sequence[Told], judged: int) -> None:
        """judged: how many differences are."""
        self.judged = max(1, judged)
        by_group: dict[tuple[tuple[str, ...], str], dict[int, float]] = {}
        for cell in cells:
            for metric, value in cell.said.scores.items():
                by_group.setdefault((cell.group, metric), {})[cell.seed] = value
        self.pooled: dict[tuple[str, ...], tuple[float, int]] = {}  # (suite, scenario, variant or not, metric): sum, df
        for (group, metric), seeds in by_group.items():
            if len(seeds) > 1:
                df = len(seeds) - 1
                for place in ((*group[:3], metric), (group[0], metric)):
                    total, so_far = self.pooled.get(place, (0.0, 0))
                    self.pooled[place] = (total + df * variance(seeds.values()), so_far + df)

    def bound(self, cell: Told, metric: str) -> float | None:
        """The largest difference within noise; None where no method has two seeds."""
        for place in ((*cell.group[:3], metric), (cell.suite, metric)):
            if place in self.pooled:
                total, df = self.pooled[place]
                return quantile(1 - LEVEL / self.judged, df) * math.sqrt(2 * total / df)
        return None
