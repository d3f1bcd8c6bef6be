"""The job of a worker, which executors take as a JSON string, and the events that a cell at work sends."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

from fedbench.results.scores import average, first_metric
from fedbench.simulation.checkpoint import EVERY


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

    Attributes:
        folder: where its files go.
        manifest: its first one.
        plugins: files given by --plugin.
        processes: how many may compute it together.
        checkpoint_every: seconds.
        fresh: whether to start from the beginning.
        gpu_fraction: of a GPU's memory, the most it may take; None: all.
        gpu: what CUDA_VISIBLE_DEVICES calls the only GPU that it sees; None: all that the process sees.
        until: after which round it ends as `halved`, to be resumed later; None: after its last.
        registered: what third-party plugins register (`Registry.found`), so that a worker imports those alone that its
            cell names.
    """

    folder: Path
    manifest: Mapping[str, Any]
    device: str
    plugins: list[str]
    processes: int = 1
    checkpoint_every: float = EVERY
    fresh: bool = False
    gpu_fraction: float | None = None
    gpu: str | None = None
    until: int | None = None
    registered: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps({**vars(self), "folder": str(self.folder)})

    @classmethod
    def from_json(cls, job: str) -> CellJob:
        """What `to_json` wrote; an executor may have added further keys."""
        given = json.loads(job)
        known = {one.name: given[one.name] for one in fields(cls) if one.name in given}
        return cls(**known | {"folder": Path(given["folder"])})


Rows = Sequence[Mapping[str, Any]]
Event = dict[str, Any]

# The events of a cell and the types of their fields. Its start and its end are the executor's to send.
EVENTS: dict[str, dict[str, type]] = {
    "ready": {},
    "torn": {"reasons": list},
    "resumed": {"round": int},
    "round": {"round": int},
}


def is_of_a_cell(event: Event) -> bool:
    """Whether it is one of EVENTS; a method may write into the pipe."""
    fields_of = EVENTS.get(event["event"])
    return fields_of is not None and all(type(event.get(name)) is kind for name, kind in fields_of.items())


def last_rows(evaluated: Rows, t: int) -> Rows:
    """Those of round t, where no later one has been tested."""
    return [*takewhile(lambda row: row["round"] == t, reversed(evaluated))][::-1]


def score_of(tested: Rows, config: Mapping[str, Any]) -> Event:
    """The `metric` and `score` that a run shows of a round, which are no results; empty where it was not tested.

    Args:
        tested: the rows of eval.parquet of the round.
        config: of the cell. The score is of accuracy or of the first metric, the average over domains or clients on
            test images.
    """
    values: dict[str, dict[tuple[str, int], float]] = {}
    for row in tested:
        if row["split"] == "test":
            values.setdefault(row["metric"], {})[row["domain"], row["client"]] = row["value"]
    metric = first_metric(config["evaluation"])
    score = average(values[metric]) if metric in values else math.nan
    return {"metric": metric, "score": score} if math.isfinite(score) else {}
