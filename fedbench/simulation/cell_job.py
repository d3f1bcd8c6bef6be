"""The job of a worker, which executors take as a JSON string, and the events that a cell at work sends."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

from fedbench.results.metric_direction import first_metric
from fedbench.results.scores import average
from fedbench.simulation.checkpoint import EVERY

WHERE_THERE = ("until", "seen")  # not written where they are not


def config_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a cell as it is computed: a relative root of its data is where it was when the cell was
    ordered, or where that is gone, in the current folder."""
    config, root = manifest["config"], manifest.get("root")
    if root is None or not os.path.exists(root):
        return dict(config)
    return {**config, "data": {**config["data"], "root": root}}


@dataclass(frozen=True)
class CellJob:
    """A cell to compute.

    folder: where its files go · manifest: its first one · plugins: files given by --plugin · processes: how many may
    compute it together · checkpoint_every: seconds · fresh: whether to start from the beginning · gpu_fraction: of a
    GPU's memory, the most it may take; None: all · until: after which round it ends as `halved`, to go on another time;
    None: after its last · seen: the computation that the run found in the folder (`manifest.computation`). A cell that
    has ended with another one since was computed by another run, and is left as it is; None: it is computed all the
    same.
    """

    folder: Path
    manifest: Mapping[str, Any]
    device: str
    plugins: list[str]
    processes: int = 1
    checkpoint_every: float = EVERY
    fresh: bool = False
    gpu_fraction: float | None = None
    until: int | None = None
    seen: str | None = None

    def to_json(self) -> str:
        told = {**vars(self), "folder": str(self.folder)}
        return json.dumps({name: value for name, value in told.items() if name not in WHERE_THERE or value is not None})

    @classmethod
    def from_json(cls, job: str) -> CellJob:
        """What `to_json` wrote; an executor may have added keys of its own."""
        told = json.loads(job)
        known = {field.name: told[field.name] for field in fields(cls) if field.name in told}
        return cls(**known | {"folder": Path(told["folder"])})


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
