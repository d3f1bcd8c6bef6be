"""Which round is chosen: the one that is best on validation images, and never by a test image."""

from __future__ import annotations

import math
from collections.abc import Mapping

VALIDATION = "validation"  # the split of eval.parquet that is chosen by


def higher_is_better(metric: str) -> bool:
    return metric.partition("/")[0] not in ("loss", "error")


def best_round(averages: Mapping[int, float], metric: str) -> int:
    """The round with the best average, of equal rounds the earliest; what is no number comes last.

    averages: of the metric on validation images, by round; one at least.
    """
    sign = 1 if higher_is_better(metric) else -1
    values = {t: -math.inf if math.isnan(v) else sign * v for t, v in averages.items()}
    return max(sorted(values), key=values.__getitem__)  # max keeps the first it meets
