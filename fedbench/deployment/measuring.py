"""This machine as a device: FLOP/s of short trainings as nodes do them, and the seconds of a message."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Collection, Mapping
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

ROUNDS, ECHOES = 6, 7  # of which the first is not counted
SUITE = Path(__file__).with_name("measured.template")  # of a suite, with the methods that are trained


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
    text = SUITE.read_text(encoding="utf-8").format(**given, rounds=ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.yaml"
        file.write_text(text, encoding="utf-8")
        points = load(file, registry.catalogue).points()
    fastest: dict[str, dict[str, tuple[float, float]]] = {}  # by precision and method, FLOPs and seconds of a round
    for point in points:
        tell({"event": "line", "line": f"Training {point.method} in {point.scenario}."})
        simulation, progress = _Timed(point.config, registry), Progress()
        simulation.run(progress=progress)
        done = [row["flops"] for row in progress.tables["rounds"]]
        rounds = list(zip(done, simulation.took, strict=True))[1:]
        own = fastest.setdefault(point.scenario, {})
        own[point.method] = min(rounds, key=lambda one: one[1] / one[0])  # which other programs disturbed least
    numbers = {
        "memory": SHARED_MEMORY * psutil.virtual_memory().total,
        "flops": flops_per_second(fastest["fp32"].values()),
        "flops_bf16": flops_per_second(fastest["bf16"].values()),
        **BROADBAND,
    }
    if find_spec("flwr"):
        tell({"event": "line", "line": "Sending messages through Flower."})
        numbers["message"] = message_seconds()
    else:
        tell({"event": "line", "line": "No seconds of a message: flwr is not installed."})
    by_method = {name: {m: done / took for m, (done, took) in own.items()} for name, own in fastest.items()}
    return {"numbers": numbers, "flops": by_method}


def flops_per_second(rounds: Collection[tuple[float, float]]) -> float:
    """Of rounds with so many FLOPs and seconds, all together."""
    return sum(done for done, _ in rounds) / sum(took for _, took in rounds)


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
