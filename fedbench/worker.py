"""What happens inside a worker process: one cell, from its manifest to its files, whatever goes wrong."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Imported before the workers are forked, so that each of them starts with them in place (see executors/local.py).
import pandas  # noqa: F401  (pyarrow imports it with its first table)
import pyarrow.parquet  # noqa: F401
import timm  # noqa: F401
import torch

from fedbench import machine
from fedbench.engine.team import together
from fedbench.errors import NotApplicable, UserError
from fedbench.plugins import Plugins, told
from fedbench.probe import probe
from fedbench.results import write_manifest, write_rows
from fedbench.results.claims import Taken, joined
from fedbench.saved import keep
from fedbench.trial import Diverged, Trial

Send = Callable[[dict[str, Any]], None]


def main(job: str, events: Connection) -> None:
    """The entry point of a worker process: a job is one JSON string, events go back through a pipe."""
    os.setsid()  # a process group of its own, so that whatever it starts can be ended with it
    torch.set_num_threads(1)
    machine.keep_memory()

    def send(event: dict[str, Any]) -> None:
        try:
            events.send_bytes(json.dumps(event).encode())  # plain JSON: no pickle comes back
        except OSError:  # the run was killed: the cell stays `running` on disk, and the next run takes it up
            os._exit(1)

    send({"event": "ready"})
    parsed = json.loads(job)
    if "probe" in parsed:
        send({"event": "probed", **tried(parsed)})
    else:
        run(parsed, send, parsed["processes"])
    events.close()


def run(job: dict[str, Any], send: Send = lambda event: None, processes: int = 1) -> dict[str, Any]:
    """Compute a cell into its folder and return its last manifest.

    job: `folder`, `manifest` (see `plan.Work.manifest`), `device`, `plugins` (files given by --plugin) and, where other
    runs may be at the folder too, `claim` (see `results.claims`) · processes: how many may compute the cell together;
    more than one only where torch has not used threads yet. A cell that another run has taken over is left to it.
    """
    try:
        with joined(job.get("claim")) as check:
            return _compute(job, send, processes, check)
    except Taken as taken:
        return {**job["manifest"], "status": "running", "reason": str(taken), "seconds": 0.0}


def _compute(job: dict[str, Any], send: Send, processes: int, check: Callable[[], None]) -> dict[str, Any]:
    folder, plugins, began = Path(job["folder"]), Plugins(job["plugins"]), time.perf_counter()
    manifest = {**job["manifest"], "status": "running", "machine": {}, "seconds": 0.0}
    manifest["started"] = datetime.now(UTC).isoformat(timespec="seconds")
    evaluation: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    uploads: list[dict[str, Any]] = []

    def on_round(t: int, rows: list[dict[str, Any]]) -> None:
        check()
        plugins.tell("fedbench_round_finished", manifest=manifest, round=t, rows=rows)
        send({"event": "round", "round": t})

    try:
        device = resolved(job["device"])
        manifest["machine"] = machine.describe(device)
        write_manifest(folder, manifest)
        plugins.tell("fedbench_cell_started", manifest=manifest)
        trial = Trial(manifest["config"], plugins, device)
        records = (layers.extend, uploads.extend)
        evaluation, rounds = together(
            min(processes, trial.shares),
            lambda team: trial.run(on_round, team, *records) if team.rank == 0 else trial.run(team=team),
        )
        check()
        write_rows(folder, "rounds", rounds)
        write_rows(folder, "layers", layers)
        if uploads:
            write_rows(folder, "uploads", uploads)
        write_rows(folder, "eval", evaluation)
        keep(folder, trial)
        outcome = {"status": "finished"}
    except Taken:
        raise
    except NotApplicable as reason:
        outcome = {"status": "not_applicable", "reason": str(reason)}
    except (UserError, Diverged) as error:
        outcome = {"status": "failed", "reason": str(error)}
    except Exception as error:  # one cell's fault must not become another's
        outcome = {
            "status": "failed",
            "reason": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
    check()
    manifest = {**manifest, **outcome, "seconds": round(time.perf_counter() - began, 3)}
    write_manifest(folder, manifest)
    plugins.tell("fedbench_cell_finished", manifest=manifest, evaluation=evaluation)
    return manifest


def tried(job: dict[str, Any]) -> dict[str, Any]:
    """The `rates` of a cell by a short probe, or the `reason` why there are none; nothing is written.

    job: as of `run`, and under `probe` the further arguments of `fedbench.probe.probe`.
    """
    try:
        return {"rates": probe(job["manifest"]["config"], Plugins(job["plugins"]), job["device"], **job["probe"])}
    except Exception as error:  # a plugin's; the other cells' times are wanted all the same
        return {"reason": told(error)}


def resolved(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; `fedbench doctor` says more")
    return device
