"""What is told of a round while a cell runs: images trained on, and the score if it was tested. No result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.results.choice import first_metric
from fedbench.results.scores import average

Rows = Sequence[Mapping[str, Any]]


def news(t: int, rows: Rows, evaluation: Rows, config: Mapping[str, Any]) -> dict[str, Any]:
    """`images` that all clients of round t trained on (an image of two local epochs counts twice), and after a test
    `metric` and `score`: of accuracy, or of the first metric, the average over domains or clients on test images.

    rows: of rounds.parquet, of this round · evaluation: of eval.parquet, so far.
    """
    batch, epochs = config["train"]["batch_size"], config["train"].get("local_epochs", 1)
    images = sum(min(row["steps"] * batch, row["examples"] * epochs) for row in rows)
    found: dict[str, Any] = {"images": int(images)}
    values: dict[str, dict[tuple[str, int], float]] = {}
    for row in reversed(evaluation):
        if row["round"] != t:
            break
        if row["split"] == "test":
            values.setdefault(row["metric"], {})[row["domain"], row["client"]] = row["value"]
    metric = first_metric(config["evaluation"])
    if metric in values:
        score = average(values[metric])
        found |= {"metric": metric, "score": score} if math.isfinite(score) else {}
    return found
