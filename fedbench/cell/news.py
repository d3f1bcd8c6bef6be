"""What is told of a round while a cell runs: images trained on, and the score if it was tested. No result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from fedbench.results.choice import first_metric
from fedbench.results.scores import average

Rows = Sequence[Mapping[str, Any]]


def last_rows(evaluated: Rows, t: int) -> Rows:
    """Those of round t, where no later one has been tested."""
    return [*takewhile(lambda row: row["round"] == t, reversed(evaluated))][::-1]


def news(images: int, tested: Rows, config: Mapping[str, Any]) -> dict[str, Any]:
    """`images`, and after a test `metric` and `score`: of accuracy, or of the first metric, the average over domains or
    clients on test images.

    images: how many all clients of the round trained on, those of two local epochs twice · tested: the rows of
    eval.parquet of the round.
    """
    found: dict[str, Any] = {"images": images}
    values: dict[str, dict[tuple[str, int], float]] = {}
    for row in tested:
        if row["split"] == "test":
            values.setdefault(row["metric"], {})[row["domain"], row["client"]] = row["value"]
    metric = first_metric(config["evaluation"])
    if metric in values:
        score = average(values[metric])
        found |= {"metric": metric, "score": score} if math.isfinite(score) else {}
    return found
