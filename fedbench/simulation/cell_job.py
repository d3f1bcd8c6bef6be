"""What a worker is sent: which cell it is to compute, and how; a job of an executor is one, as a JSON string."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

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
    None: after its last · seen: the hash of the manifest that the run found in the folder (`hash_of_json`). A cell that
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
