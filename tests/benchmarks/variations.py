"""What else a round may meet on a GPU, each by one cell: how often steps are replayed, many clients, uneven batches,
dropout, images that have to travel, evaluation, and a neighbour on the same GPU."""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from cell import COMPILED, Bench, built, measured

from fedbench.cell import pixels
from fedbench.engine import replay
from fedbench.seeding import generator

ROUNDS = 3


def graphs(bench: Bench) -> dict[str, Any]:
    """How many steps of three small rounds were recorded and replayed: fedra's M differs in each of them."""
    facts = {}
    for method in ("fedra", "depthfl"):
        count = {"recorded": 0, "replayed": 0}

        def counted(self: Any, *given: Any, name: str, real: Any, count: dict[str, int] = count) -> Any:
            count[name] += 1
            return real(self, *given)

        with ExitStack() as stack:
            for name, what in (("_record", "recorded"), ("_replay", "replayed")):
                real = getattr(replay.Replayed, name)
                way = functools.partialmethod(counted, name=what, real=real)
                stack.enter_context(mock.patch.object(replay.Replayed, name, way))
            facts[method] = measured(bench, bench.small, method, "fp32", rounds=ROUNDS) | count
    return facts


def many_clients(bench: Bench) -> dict[str, Any]:
    """As many images a round, of 6 clients and of 100."""
    small, most = bench.small, 6 if bench.tiny else 100
    each = max(small.batch, small.images * len(small.depths) // most // small.batch * small.batch)
    many = replace(small, images=each, depths=tuple(small.depths[n % len(small.depths)] for n in range(most)))
    return {f"{len(s.depths)} clients": measured(bench, s, precision="fp32", rounds=ROUNDS) for s in (small, many)}


def uneven(bench: Bench) -> dict[str, Any]:
    """Every epoch's last batch is short."""
    size = replace(bench.small, images=bench.small.images - bench.small.batch // 2)
    return {"short last batches": measured(bench, size, precision="fp32", rounds=ROUNDS)}


def dropout(bench: Bench) -> dict[str, Any]:
    size = replace(bench.small, dropout=0.1)
    return {"dropout 0.1": measured(bench, size, precision="fp32", rounds=ROUNDS)}


def distant(bench: Bench) -> dict[str, Any]:
    """Images that do not stay on the GPU."""
    far = COMPILED | {"settings": ((pixels, "RESIDENT", 0.0),)}
    return {"images travel": measured(bench, bench.small, precision="fp32", how=far, rounds=ROUNDS)}


def evaluation(bench: Bench) -> dict[str, Any]:
    """Images a second that are answered, in a large model and a small one."""
    facts = {}
    for size, precision in ((bench.small, "fp32"), (replace(bench.large, images=bench.large.batch), "bf16")):
        tests = 2 if bench.tiny else 512
        trial = built(bench, replace(size, tests=tests), "fedra", precision, "cohort", 1)
        state, times = trial.method.init(generator(0)), []
        for _ in range(2 if bench.tiny else 4):
            bench.wait()
            began = time.perf_counter()
            with trial.precision():
                trial.evaluation.answers(functools.partial(trial.method.predictor, state))
            times.append(time.perf_counter() - began)
        images = tests * len(size.depths)
        facts[size.name] = {"images": images, "images_per_second": images / statistics.median(times[1:])}
    return facts


ALONE = """
import json, sys, time, torch
from cell import Bench, measured
from fedbench.registry.registry import Registry
device, tiny = sys.argv[1], sys.argv[2] == "True"
if device == "cuda":
    torch.cuda.set_per_process_memory_fraction(0.45)
bench = Bench(device, tiny, time.perf_counter() + 120, Registry(), {})
print(json.dumps(measured(bench, bench.small, precision="fp32", rounds=3)))
"""


def neighbours(bench: Bench) -> dict[str, Any]:
    """Two processes with a cell each on one GPU, with not quite half of its memory each; and one alone."""

    def together(number: int) -> list[dict[str, Any]]:
        command = [sys.executable, "-c", ALONE, bench.device, str(bench.tiny)]
        folder = Path(__file__).parent
        running = [subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) for _ in range(number)]
        try:
            return [json.loads(one.communicate(timeout=150)[0].splitlines()[-1]) for one in running]
        finally:
            for one in running:
                one.kill()

    (alone,), both = together(1), together(2)
    rate = sum(own["images_per_second"] for own in both)
    return {"alone": alone, "one of two": both[0], "both": {"images_per_second": rate}}
