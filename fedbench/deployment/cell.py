"""A cell on a federation of Flower, in a worker process."""

from __future__ import annotations

import json
import signal
from typing import Any

import torch

from fedbench import machine
from fedbench.deployment.loopback import Loopback, OnFlower
from fedbench.deployment.standing import Standing
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.worker import Send


def compute(text: str, send: Send) -> dict[str, Any]:
    """What runs in a worker process: computes the cell of a job on nodes. Its guard ends all that is started.

    Args:
        text: a `CellJob` as a JSON string, with the options of the executor under `flower`.
        send: takes the events of `fedbench.simulation.cell_job`.
    """
    torch.set_num_threads(1)
    machine.keep_memory()
    send({"event": "ready"})
    job, given, asked = CellJob.from_json(text), json.loads(text)["flower"], list[int]()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    nodes: OnFlower = (Standing if given["superlink"] else Loopback)(job, given)
    try:
        end = worker.run(job, send, stopping=lambda: bool(asked), simulation=nodes.simulation)
    finally:
        nodes.close()
    return {key: end.get(key) for key in ("status", "reason", "seconds")}
