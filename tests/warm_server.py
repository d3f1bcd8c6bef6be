"""What the server of workers does under tests before it forks any: a tiny cell of some methods.

So a worker inherits what a first use of torch costs, and what it costs to train models of these parts. On a machine
with a GPU a process that has gone backward cannot be forked.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from pathlib import Path

import counted
import torch
from command import TINY, write_suite

import fedbench.runner.forkserver_preload  # noqa: F401
from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.simulation.simulation import Simulation

METHODS = "fedra, allsmall, alllarge, depthfl, head_only"

torch.set_num_threads(1)  # a process with further threads cannot be forked safely
if not Path("/dev/nvidiactl").exists():
    for owner, name, value in counted.REPLACED:
        setattr(owner, name, value)
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry([str(TINY)], in_place=True)
        for cell in load(write_suite(Path(folder), METHODS), registry).points():
            Simulation(cell.config, registry).run()
    gc.collect()
    gc.freeze()
sys.path.remove(str(Path(__file__).parent))  # it is there to find this file; workers see what users' workers see
