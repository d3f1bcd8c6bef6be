"""Weights & Biases: a run for each cell in a project called as the suite, and one for the suite with the report.

`WANDB_API_KEY=... fedbench run SUITE --tracker wandb`. Without a key, or with WANDB_MODE=offline, runs are written
below `wandb/` next to the suite's folder (or in WANDB_DIR), and `wandb sync` sends them later. A cell that resumes from
its checkpoint resumes its run. W&B takes no step twice: after `--force` a run that was sent keeps its earlier numbers,
unless you delete it there first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedbench import hookimpl
from fedbench_plugins.trackers.following import WELL, ReportedOnce, named, of_round, parameters, report

NEEDS = "wandb"  # the package, and the extra that brings it
reported_once = ReportedOnce("wandb")
_runs: dict[str, Any] = {}  # by folder, of this process


@hookimpl
@reported_once
def fedbench_cell_started(manifest, folder):
    suite, cell = named(folder)
    config = {name: text[:500] for name, text in parameters(manifest).items()}
    _runs[folder] = _begun(suite, suite.name, cell, manifest["id"], config)


@hookimpl
@reported_once
def fedbench_round_finished(round, rows, evaluation, folder):
    _runs[folder].log(of_round(rows, evaluation), step=round)


@hookimpl
@reported_once
def fedbench_cell_finished(manifest, folder):
    run = _runs.pop(folder)
    run.summary["status"] = manifest["status"]
    run.finish(exit_code=0 if manifest["status"] in WELL else 1)


@hookimpl
@reported_once
def fedbench_suite_finished(suite, folder):
    import wandb

    run = _begun(Path(folder), suite, suite, suite, {})
    run.log({"report": wandb.Html(report(folder), inject=False)})
    run.finish()


def _begun(place: Path, suite: str, name: str, id: str, config: dict[str, str]) -> Any:
    """The run with that id, begun or gone on with; nothing is printed, no console output, code or machine is sent."""
    import wandb

    quiet = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True)
    folder = os.environ.get("WANDB_DIR") or str(place.parent)
    mode = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
    names = {"project": suite, "group": suite, "name": name, "id": id, "resume": "allow"}
    return wandb.init(**names, mode=mode, config=config, dir=folder, settings=quiet)
