"""Collapse: a run that ends with a constant prediction, or far below a score that it had before."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from fedbench.results.metric_direction import higher_is_better, measure, without_noise

if TYPE_CHECKING:
    import pandas

POINTS, NATS = 0.10, 0.5  # of a fraction and of a loss, below an earlier score of the same run
CONSTANT = "constant"


def collapse(scores: Mapping[int, float], constant: Collection[int], metric: str) -> str | None:
    """How a run collapsed by its last tested round; None where it did not.

    Args:
        scores: of one run, by tested round.
        constant: the rounds after which it said the same of every example; none where that was not recorded.
        metric: what the scores are of.

    Returns:
        `constant` where it says the same of every example, or `fell after round t` where its last score lies more than
        POINTS of a fraction, or NATS of a loss, below its best one; t is the last round that does not.
    """
    known = {t: value for t, value in scores.items() if math.isfinite(value)}
    if max(scores, default=0) in constant:
        return CONSTANT
    most = _most(metric)
    if most is None or not known or max(known) != max(scores) or fall(known, metric) <= most:
        return None
    best = _best(known, metric)
    return f"fell after round {max(t for t, value in known.items() if _below(value, best) <= most)}"


def fall(scores: Mapping[int, float], metric: str) -> float:
    """By how much the last score lies below the best one, in the metric's own unit; 0 where it is the best."""
    return _below(scores[max(scores)], _best(scores, metric)) if scores else 0.0


def constant_rounds(answers: pandas.DataFrame, split: str, metric: str) -> set[int]:
    """The rounds after which the output that a metric is of ("last" for `accuracy/last`) said the same of every
    example. answers: the rows of answers.parquet of one cell."""
    output = metric.partition("/")[2]
    same = answers[(answers["split"] == split) & (answers["output"] == output) & (answers["top_share"] == 1.0)]
    return set(same["round"].tolist())


def _most(metric: str) -> float | None:
    """The largest fall that is none; None for metrics of other units, of which nobody knows what much is."""
    if measure(metric).unit == "%":
        return POINTS
    name = metric.partition("/")[0]
    return NATS if name in ("loss", "nll") or name.endswith("_loss") else None


def _best(scores: Mapping[int, float], metric: str) -> float:
    return (max if higher_is_better(metric) else min)(scores.values())


def _below(value: float, best: float) -> float:
    return without_noise(abs(best - value))
