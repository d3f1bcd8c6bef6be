"""A million registered clients, a hundred at work: what is planned, begun, computed and kept follows the sampled ones.

`tests/simulation/test_registered_clients.py` counts calls and bytes at 1,000 and 10,000 clients.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from crowds import WINDOWS, on_disk, write
from spending import spent

from fedbench.registry.registry import Registry
from fedbench.runner.runner import load
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.saved_model import keep
from fedbench.simulation.simulation import Simulation
from fedbench.types import Clients

STATUS = Path("/proc/self/status")  # knows the largest resident memory of this process alone


def in_a_fresh_process(folder: Path, clients: int) -> dict[str, float]:
    """What `inside` finds there. Not by multiprocessing, which leaves a process that `spent` would wait for."""
    given = f"pathlib.Path({str(folder)!r}), {clients}"
    words = f"import json, pathlib, test_million; print(json.dumps(test_million.inside({given})))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", words], env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def inside(folder: Path, clients: int) -> dict[str, float]:
    """Processor seconds of the parts of a cell of 100 sampled clients, its memory in bytes, and what it keeps."""
    torch.set_num_threads(1)
    registry = Registry([str(WINDOWS)])
    (cell,) = load(write(folder, clients, 100, 8, "micro_vit"), registry).points()
    before, clock = peak(), [time.process_time()]
    trial = Simulation(cell.config, registry)
    clock.append(time.process_time())
    trial.records.totals(trial.method, sum(trial.federated.sizes))
    clock.append(time.process_time())
    built, rounds = peak(), [time.process_time()]
    progress, place = Progress(), folder / f"kept-{clients}"
    trial.run(lambda t, rows: rounds.append(time.process_time()), progress=progress)
    Checkpoints(place, "crowd", "cpu").write(progress)
    checkpoint = on_disk(place)
    keep(place, trial)
    registered: Clients = trial.federation.clients
    arrays = sum(a.nbytes for a in (registered.domains, registered.starts, registered.sizes))
    return {
        "build": clock[1] - clock[0],
        "totals": clock[2] - clock[1],
        "first round": rounds[1] - rounds[0],
        "a round": min(after - one for one, after in zip(rounds[1:], rounds[2:], strict=False)),
        "grew": built - before,
        "peak": peak(),
        "arrays": arrays,
        "checkpoint": checkpoint,
        "state": on_disk(place) - checkpoint,
    }


def peak() -> int:
    return int(re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())[1]) * 1024


@pytest.mark.parametrize("clients", [10_000, 100_000, 1_000_000])
def test_a_crowd(benchmark, tmp_path, figures, clients):
    """The parts of a cell in a process of its own; then the whole commands, with an empty cache and one round."""
    if benchmark.disabled or not STATUS.exists():
        pytest.skip("measured by tox -e bench, where /proc is")
    found = benchmark.pedantic(lambda: in_a_fresh_process(tmp_path, clients), rounds=1)
    path, mib = write(tmp_path, clients, 100, 1, "micro_vit"), 2**20
    plan, again, run = (spent(tmp_path, word, path, "--plugin", WINDOWS) for word in ("plan", "plan", "run"))
    figures.add(f"crowd: {clients}", {**found, "plan": plan, "plan again": again, "run": run}, [
        f"{clients:,} clients, 100 sampled: built in {found['build']:.2f}, priced in {found['totals']:.2f}, "
        f"first round {found['first round']:.2f}, a round {found['a round']:.3f} processor seconds",
        f"  {found['grew'] / mib:.0f} MiB to build, peak {found['peak'] / mib:.0f} MiB, "
        f"{found['arrays'] / clients:.0f} bytes a client; checkpoint {found['checkpoint'] / mib:.2f} MiB, "
        f"state {found['state'] / mib:.2f} MiB",
        *(f"  {name}: {one['seconds']:.1f} s, {one['processor']:.1f} of processors, {one['mib']:.0f} MiB"
          for name, one in (("plan", plan), ("plan again", again), ("run of one round", run))),
    ])  # fmt: skip
    if clients == 1_000_000:  # by the clock it is less where both cores are free
        assert plan["processor"] + run["processor"] <= 60
