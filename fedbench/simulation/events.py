"""What a cell sends to the run while it is at work, and what of that the run believes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from fedbench.results.metric_direction import first_metric
from fedbench.results.scores import average

Rows = Sequence[Mapping[str, Any]]
Event = dict[str, Any]

# The events of a cell and the types of their fields. Its start and its end are the executor's to send.
SHAPES: dict[str, dict[str, type]] = {
    "ready": {},
    "torn": {"reasons": list},
    "resumed": {"round": int},
    "round": {"round": int},
}

# Further fields, which are left out where they have another type.
MORE: dict[str, dict[str, type]] = {"round": {"images": int, "metric": str, "score": float}}


def checked(event: Mapping[str, Any]) -> Event | None:
    """The event as the run may use it; None where it is none of `SHAPES`: a method may write where it likes."""
    what = event.get("event")
    if not isinstance(what, str) or what not in SHAPES:
        return None
    right = all(type(event.get(name)) is wanted for name, wanted in SHAPES[what].items())
    if not right or not all(isinstance(reason, str) for reason in event.get("reasons", ())):
        return None
    more = MORE.get(what, {})
    if all(type(event[name]) is wanted for name, wanted in more.items() if name in event):
        return dict(event)
    return {name: value for name, value in event.items() if name not in more}


def last_rows(evaluated: Rows, t: int) -> Rows:
    """Those of round t, where no later one has been tested."""
    return [*takewhile(lambda row: row["round"] == t, reversed(evaluated))][::-1]


def news(images: int, tested: Rows, config: Mapping[str, Any]) -> Event:
    """What a run shows of a round: `images`, and after a test `metric` and `score`. These are no results.

    Args:
        images: how many all clients of the round trained on, those of two local epochs twice.
        tested: the rows of eval.parquet of the round.
        config: of the cell. The score is of accuracy or of the first metric, the average over domains or clients on
            test images.
    """
    found: Event = {"images": images}
    values: dict[str, dict[tuple[str, int], float]] = {}
    for row in tested:
        if row["split"] == "test":
            values.setdefault(row["metric"], {})[row["domain"], row["client"]] = row["value"]
    metric = first_metric(config["evaluation"])
    if metric in values:
        score = average(values[metric])
        found |= {"metric": metric, "score": score} if math.isfinite(score) else {}
    return found
