"""This machine as a device: FLOP/s of short trainings as nodes do them, and the seconds of a message."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import torch

from fedbench.deployment import wire
from fedbench.deployment.loopback import Loopback
from fedbench.devices.table import BROADBAND, SHARED_MEMORY
from fedbench.registry.registry import Registry
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.worker import Send
from fedbench.suite import load
from fedbench.types import Uploads

METHODS = ("fedra", "head_only")  # one with a backward pass through layers, one without
ROUNDS, ECHOES = 4, 7  # of which the first is not counted
SUITE = """suite: measured
defaults:
  backbone: {backbone}
  adapter: {{name: lora, dropout: 0.0}}
  data: {{name: strokes6}}
  participation: {{count: 1}}
  train: {{rounds: {rounds}, max_steps: {steps}, batch_size: {batch}}}
  evaluation: {{at: [{rounds}]}}
  engine: sequential
scenarios: {{fp32: {{}}, bf16: {{precision: bf16}}}}
methods: [{methods}]
"""


class _Timed(Simulation):
    """A simulation that takes the CPU seconds of every round's training."""

    def _train(self, *of_a_round: Any) -> Uploads:
        began = time.process_time()
        uploads = super()._train(*of_a_round)
        self.took = [*getattr(self, "took", []), time.process_time() - began]
        return uploads


def measured_device(given: Mapping[str, Any], tell: Send) -> dict[str, Any]:
    """What runs in a worker process: describes this machine, by one core as a node uses it.

    Args:
        given: `backbone`, `steps` of a round, and `batch`.
        tell: takes lines.

    Returns:
        `numbers`, those of a device as a suite has them, and `flops`, FLOP/s by precision and method.
    """
    torch.set_num_threads(1)
    registry = Registry([], in_place=True)
    text = SUITE.format(**given, rounds=ROUNDS, methods=", ".join(METHODS))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.yaml"
        file.write_text(text, encoding="utf-8")
        points = load(file, registry.catalogue).points()
    flops: dict[str, dict[str, float]] = {}
    spent: dict[str, tuple[float, float]] = {}
    for point in points:
        tell({"event": "line", "line": f"Training {point.method} in {point.scenario}."})
        simulation, progress = _Timed(point.config, registry), Progress()
        simulation.run(progress=progress)
        done = sum(row["flops"] for row in progress.tables["rounds"] if row["round"] > 1)
        seconds = sum(simulation.took[1:])
        flops.setdefault(point.scenario, {})[point.method] = done / seconds
        before = spent.get(point.scenario, (0.0, 0.0))
        spent[point.scenario] = before[0] + done, before[1] + seconds
    numbers = {
        "memory": SHARED_MEMORY * psutil.virtual_memory().total,
        "flops": spent["fp32"][0] / spent["fp32"][1],
        "flops_bf16": spent["bf16"][0] / spent["bf16"][1],
        **BROADBAND,
    }
    if find_spec("flwr"):
        tell({"event": "line", "line": "Sending messages through Flower."})
        numbers["message"] = message_seconds()
    else:
        tell({"event": "line", "line": "No seconds of a message: flwr is not installed."})
    return {"numbers": numbers, "flops": flops}


def message_seconds() -> float:
    """Seconds that Flower takes for a message of next to nothing on this machine: half of it and its reply."""
    nodes = Loopback(None, {"patience": {}})
    try:
        nodes.begin(1)
        question = wire.packed({"kind": "echo"}, {})
        took = [nodes.exchange({0: question}, t)[0].seconds for t in range(ECHOES)]
    finally:
        nodes.close()
    return statistics.median(took[1:]) / 2
