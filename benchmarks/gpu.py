"""Parity and speed on a GPU: `python benchmarks/gpu.py --output FOLDER`, at most four minutes on an H200.

Every cell that is timed is a `Trial`, run as a user's would be: its images, rounds and aggregation are all in the
time. `--tiny --device cpu` tries the script itself on any machine.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from cell import TABLE1, Bench, built, measured
from torch import nn

from fedbench import machine
from fedbench.engine import cohort, sequential
from fedbench.machine import package_version
from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_mixer, tiny_vit

TABLE1_ROUNDS, TABLE1_IMAGES = 100, 60_000


# --- the sections -------------------------------------------------------------------------------------------------


def rates(bench: Bench) -> dict[str, Any]:
    """FLOP/s of a large matrix product in both precisions; what utilisation is measured against."""
    n = 256 if bench.tiny else 8192
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        a, b = (torch.randn(n, n, device=bench.device).to(dtype) for _ in range(2))
        times = []
        for _ in range(3 if bench.tiny else 20):
            bench.wait()
            began = time.perf_counter()
            torch.mm(a, b)
            bench.wait()
            times.append(time.perf_counter() - began)
        bench.rates[precision] = 2 * n**3 / statistics.median(times)
    return {"n": n, "flops_per_second": dict(bench.rates)}


def parity(bench: Bench) -> dict[str, Any]:
    """The cohort engine, here, against the oracle after a round in float64: the largest differences.

    The oracle is the CPU's, and with dropout this device's, whose masks are others.
    """
    apart = {}
    for name in ("fedra",) if bench.tiny else TABLE1:
        for model in (tiny_vit, tiny_mixer):
            for dropout, device in ((0.0, "cpu"), (0.3, bench.device)):
                ours, oracles = (
                    final_state(bench.registry, name, model(), dropout, *way)
                    for way in ((cohort.train, bench.device), (sequential.train, device))
                )
                pairs = zip(ours, oracles, strict=True)
                worst = max(float((a.cpu() - b.cpu()).abs().max()) for a, b in pairs)
                apart[f"{name}, {model.__name__}, dropout {dropout}"] = worst
    if max(apart.values()) > 1e-9:
        raise AssertionError(f"the engines differ: {apart}")
    return {"largest_difference": max(apart.values()), "differences": apart}


def final_state(
    registry: Registry, name: str, model: nn.Module, dropout: float, engine: Callable, device: str
) -> list[torch.Tensor]:
    adapter = {"name": "lora", "rank": 2, "alpha": 4, "dropout": dropout}
    setup = replace(setup_of(registry, model, [4, 3, 1], adapter), engine=engine, device=device)
    method, some = registry.make("method", {"name": name}, setup=setup), cohort_of([4, 3, 1], steps=3)
    here = replace(some, batches=lambda n: ((x.to(device), y.to(device)) for x, y in some.batches(n)))
    state, _ = method.round(method.init(generator(0)), 0, here, generator(0, 0))
    return [value for part in (*state["r"], state["shared"]) for value in part.values()]


ENGINES = ("cohort", "sequential")


def large_model(bench: Bench) -> dict[str, Any]:
    return {engine: measured(bench, bench.large, engine=engine) for engine in ENGINES}


def micro_model(bench: Bench) -> dict[str, Any]:
    """Dim 64 in fp32, where launching kernels is what takes time."""
    return {engine: measured(bench, bench.small, precision="fp32", engine=engine) for engine in ENGINES}


def many_clients(bench: Bench) -> dict[str, Any]:
    """The large model in batches of 16: as many images a round, of 6 clients and of 48."""
    few = bench.large if bench.tiny else replace(bench.large, images=128, batch=16)
    many = replace(few, images=few.batch, depths=few.depths * (few.images // few.batch))
    return {f"{len(size.depths)} clients": measured(bench, size) for size in (few, many)}


def evaluation(bench: Bench) -> dict[str, Any]:
    """Images a second that are answered, by a large model and a small one."""
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


def uneven(bench: Bench) -> dict[str, Any]:
    """Every epoch's last batch is short."""
    batch = bench.large.batch
    return {"short last batches": measured(bench, replace(bench.large, images=3 * batch + 5 * batch // 8))}


def precisions(bench: Bench) -> dict[str, Any]:
    """fp32 without TF32, and bf16; fewer images, since fp32 takes long."""
    large = replace(bench.large, images=bench.large.batch)
    return {
        f"{size.name}, {precision}": measured(bench, size, precision=precision)
        for size in (large, bench.small)
        for precision in ("fp32", "bf16")
    }


def table1(bench: Bench) -> dict[str, Any]:
    """The training time of the paper's Table 1 on this machine: measured rates, extrapolated."""
    facts: dict[str, Any] = {}
    for method in TABLE1:
        own = measured(bench, bench.large, method)
        facts[method] = own | {"hours": TABLE1_ROUNDS * TABLE1_IMAGES / own["images_per_second"] / 3600}
    total = sum(own["hours"] for own in facts.values())
    formula = f"sum over methods of {TABLE1_ROUNDS} rounds x {TABLE1_IMAGES} images / images per second; no evaluation"
    return facts | {"total": {"hours": total, "formula": formula}}


# In the order of what their figures are worth, for whoever has little time.
SECTIONS = {
    "rates": rates,
    "parity": parity,
    "large model": large_model,
    "many clients": many_clients,
    "evaluation": evaluation,
    "uneven batches": uneven,
    "table 1": table1,
    "precisions": precisions,
    "micro model": micro_model,
}


# --- the report ---------------------------------------------------------------------------------------------------


def run(bench: Bench, out: Path) -> dict[str, Any]:
    """All sections; what is there is written after each, and a section's failure is its own."""
    out.mkdir(parents=True, exist_ok=True)
    versions = {name: package_version(name) for name in ("torch", "timm", "fedbench")} | {"cuda": torch.version.cuda}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    report = {"date": now, "tiny": bench.tiny, "machine": facts_of(bench.device), "versions": versions, "sections": {}}
    for name, section in SECTIONS.items():
        report["sections"][name] = outcome(bench, section)
        if bench.device == "cuda":
            torch.cuda.empty_cache()
        print("\n".join(lines(name, report["sections"][name])), flush=True)
        (out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
        (out / "gpu.txt").write_text("\n".join(table(report)) + "\n")
    return report


def outcome(bench: Bench, section: Callable[[Bench], dict[str, Any]]) -> dict[str, Any]:
    """A section's figures, or why there are none."""
    began = time.perf_counter()
    if bench.late:
        return {"status": "left out: no time"}
    try:
        found = {"status": "done", "figures": section(bench)}
    except Exception:  # the other sections' figures are worth having
        found = {"status": "failed", "traceback": traceback.format_exc()}
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def facts_of(device: str) -> dict[str, Any]:
    facts: dict[str, Any] = machine.describe(device)
    if device == "cuda":
        of_gpu = torch.cuda.get_device_properties(0)
        facts["gpu_memory_gib"] = round(of_gpu.total_memory / 2**30, 1)
        facts["gpu_processors"] = of_gpu.multi_processor_count
    return facts


def table(report: dict[str, Any]) -> list[str]:
    """A report as lines of text."""
    found = [json.dumps(report["machine"]), json.dumps(report["versions"])]
    return found + [line for name, section in report["sections"].items() for line in lines(name, section)]


def lines(name: str, section: dict[str, Any]) -> list[str]:
    """The figures of a section as lines of text."""
    found = ["", f"{name}: {section['status']} ({section.get('seconds', 0)} s)"]
    for row, figures in section.get("figures", {}).items():
        if isinstance(figures, dict):
            cells = [f"{key} {value:.4g}" for key, value in figures.items() if isinstance(value, int | float)]
            found.append(f"  {row:24} " + " · ".join(cells))
        else:
            found.append(f"  {row} {figures:.4g}")
    return found + section.get("traceback", "").splitlines()[-3:]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--output", "-o", dest="out", type=Path, required=True, help="the folder for gpu.json and gpu.txt"
    )
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options.add_argument("--tiny", action="store_true", help="sizes that a CPU does in seconds")
    options.add_argument("--minutes", type=float, default=3.0, help="after them, nothing new is begun")
    given = options.parse_args()
    torch.backends.cuda.matmul.fp32_precision = torch.backends.cudnn.conv.fp32_precision = "ieee"  # fp32 without TF32
    deadline = time.perf_counter() + 60 * given.minutes
    report = run(Bench(given.device, given.tiny, deadline, Registry(), {}), given.out)
    return int(any(section["status"] == "failed" for section in report["sections"].values()))


if __name__ == "__main__":
    sys.exit(main())
