"""The worker process: computes one cell, from its manifest to its files, whatever goes wrong."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

# Imported before the workers are forked, so that each starts with them in place (see runner/forkserver_preload.py).
import pandas  # noqa: F401  (pyarrow imports it with its first table)
import pyarrow.parquet  # noqa: F401
import torch
import torch._dynamo  # (its optimizers ask for it with their first step)

from fedbench import machine
from fedbench.engine.process_group import ProcessGroup, together
from fedbench.errors import NotApplicable, UserError, text_of, traceback_of
from fedbench.registry.registry import Registry
from fedbench.results import write_manifest, write_rows
from fedbench.results.columns import HALVED, INTERRUPTED, KEPT, ONLY_WITH_ROWS
from fedbench.results.files import believed_manifest, cleared, described
from fedbench.results.identity import read_by_its_method
from fedbench.results.lock import HELD, Held, cell_lock
from fedbench.results.scores import declare
from fedbench.simulation.cell_job import CellJob, config_of, last_rows, score_of
from fedbench.simulation.checkpoint import Checkpoints, Progress, forget
from fedbench.simulation.failure_reason import Diverged, PluginFault, out_of_memory, place
from fedbench.simulation.provenance import prints_now, require_same
from fedbench.simulation.saved_model import keep
from fedbench.simulation.simulation import Simulation

Send = Callable[[dict[str, Any]], None]


class Stopped(Exception):
    """The cell was asked to end, and can be resumed from its checkpoint."""


class Halved(Exception):
    """The cell has reached the round that its job names, and can be resumed from its checkpoint."""


LOCK = 5.0  # seconds to wait for a cell's lock: what a killed run has started dies a moment after it


def compute(job: str, send: Send) -> dict[str, Any]:
    """What runs in a worker process: computes the cell of a job, and returns its `status`, `reason` and `seconds`.

    Args:
        job: a `CellJob` as a JSON string.
        send: takes the events of `fedbench.simulation.cell_job`.
    """
    torch.set_num_threads(1)
    machine.keep_memory()

    def sending(event: dict[str, Any]) -> None:
        try:
            send(event)
        except OSError:  # the run was killed: the cell stays `running` on disk, and the next run resumes it
            os._exit(1)

    sending({"event": "ready"})
    cell_job, asked = CellJob.from_json(job), list[int]()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    end = run(cell_job, sending, cell_job.processes, lambda: bool(asked))
    return {key: end.get(key) for key in ("status", "reason", "seconds")}


def run(
    job: CellJob,
    send: Send = lambda event: None,
    processes: int = 1,
    stopping: Callable[[], bool] = lambda: False,
    simulation: Callable[..., Simulation] = Simulation,
) -> dict[str, Any]:
    """Compute a cell into its folder, from its checkpoint if it has one, and return its last manifest.

    Args:
        job: which cell, and how.
        send: takes its events.
        processes: how many may compute the cell together; more than one only where torch has not used threads yet.
        stopping: asked after each round; where it is true, the cell ends as `interrupted`, with a checkpoint.
        simulation: makes the simulation of the cell: another one where its clients are real.

    A cell at which another process is at work stays as it is, and is reported as interrupted, for the reason HELD.
    """
    try:
        with cell_lock(job.folder, LOCK):
            return _ended(_Computation(job, send, stopping, simulation), processes)
    except Held:
        return {**job.manifest, "status": INTERRUPTED, "reason": HELD, "seconds": 0.0}


def _ended(cell: _Computation, processes: int) -> dict[str, Any]:
    """The last manifest of a cell, however it ended."""
    try:
        outcome = cell.run(processes)
    except Stopped as reason:
        outcome = {"status": "interrupted", "reason": str(reason)}
    except Halved as reason:
        outcome = {"status": HALVED, "reason": str(reason), "files": described(cell.folder)}
    except NotApplicable as reason:
        outcome = {"status": "not_applicable", "reason": str(reason)}
    except UserError as error:
        outcome = {"status": "failed", "reason": f"{text_of(error)}{cell.place(error)}"}
    except Diverged as error:
        outcome = {"status": "failed", "reason": text_of(error), "diverged": True}
    except (Exception, SystemExit) as error:  # one cell's fault must not become another's
        outcome = {
            "status": "failed",
            "reason": f"{'out of memory: ' * out_of_memory(error)}{type(error).__name__}: {text_of(error)}"
            + cell.place(error),
            "traceback": traceback_of(error),
        }
    return cell.end(outcome)


class _Computation:
    """A cell at work: its manifest, its progress, and what is reported and kept after every round."""

    def __init__(self, job: CellJob, send: Send, stopping: Callable[[], bool], make: Callable[..., Simulation]) -> None:
        self.job, self.folder, self.make = job, job.folder, make
        if job.gpu is not None:  # before a plugin, or torch, asks CUDA what there is
            os.environ["CUDA_VISIBLE_DEVICES"] = job.gpu
        self.registry = Registry(job.plugins, in_place=True, known=job.registered)
        self.send, self.stopping = send, stopping
        self.manifest = {**job.manifest, "status": "running", "machine": {}, "seconds": 0.0}
        self.manifest["started"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.progress = Progress()
        self.began = time.perf_counter()

    def run(self, processes: int) -> dict[str, Any]:
        """All rounds that are left, and the files; how it ended."""
        device = resolved(self.job.device)
        if device == "cuda" and self.job.gpu_fraction:  # what it takes beyond that is its own fault, not others'
            torch.cuda.set_per_process_memory_fraction(self.job.gpu_fraction)
        self.manifest["machine"] = machine.describe(device) | machine.kernels()
        config, catalogue = self.manifest["config"], self.registry.catalogue
        require_same(self.manifest, self.registry)
        self.registry.load_named(read_by_its_method(self.manifest))
        measures = catalogue.measures(metric["name"] for metric in config["evaluation"]["metrics"])
        declared = {"metrics": measures, "method": catalogue.said_of(config["method"]["name"])}
        self.manifest |= {what: facts for what, facts in declared.items() if facts}
        declare(measures)
        self._resume(device)
        self._compute(device, processes)
        self._require_unchanged()
        self._write_tables()
        keep(self.folder, self.simulation)
        return {"status": "finished", "files": described(self.folder)}

    def _compute(self, device: str, processes: int) -> None:
        """All rounds that are left."""
        write_manifest(self.folder, self.manifest)
        self._call("fedbench_cell_started")
        self.simulation = simulation = self.make(
            config_of(self.manifest),
            self.registry,
            device,
            store=self.checkpoints.store,
        )
        prints = {"data": simulation.dataset.fingerprint, "weights": simulation.source.fingerprint}
        require_same(self.manifest, self.registry, prints)
        if simulation.deployed:
            self.manifest["deployed"] = simulation.deployed
        if simulation.left_out:
            self.manifest["left_out"] = simulation.left_out
        if doubts := simulation.federated.doubts():
            self.manifest["doubts"] = doubts
        if simulation.federation.turnout is not None:
            self.manifest["turnout"] = simulation.federation.turnout
        progress = self.progress
        self._halve(progress.round)  # one that was killed before it could say that it had come so far

        def work(team: ProcessGroup) -> None:
            simulation.run(self._on_round if team.rank == 0 else lambda t, rows: None, team, progress)

        together(min(processes, simulation.processes), work)

    def _require_unchanged(self) -> None:
        """Raises UserError where the data, weights or code of the cell have changed since it began: no checkpoint of it
        may then be gone on from."""
        try:
            require_same(self.manifest, self.registry, prints_now(self.manifest, self.registry))
        except UserError:
            forget(self.folder)
            raise
        except OSError:  # a plugin's file is gone: what was imported of it is what has computed
            pass

    def place(self, error: BaseException) -> str:
        """The plugin's file that an exception came through, in words that follow on its own; or ""."""
        return "" if isinstance(error, PluginFault) else place(error, self.registry, self.manifest["config"])

    def _write_tables(self) -> None:
        for kind, rows in self.progress.tables.items():
            if rows or kind not in ONLY_WITH_ROWS:
                write_rows(self.folder, kind, rows)

    def _resume(self, device: str) -> None:
        """Clear the folder of what a killed run left half written, and resume from the checkpoint."""
        torn = cleared(self.folder, believed_manifest(self.folder))
        if self.job.fresh:
            forget(self.folder)
        self.checkpoints = Checkpoints(self.folder, self.manifest["id"], device, self.job.checkpoint_every)
        self.progress, refused = self.checkpoints.latest()
        self.began -= self.progress.seconds
        self.manifest["round"] = self.progress.round
        if torn := [*torn, *refused]:
            self.manifest["torn"] = torn
            self.send({"event": "torn", "reasons": torn})
        if self.progress.round:
            self.send({"event": "resumed", "round": self.progress.round})

    def _on_round(self, t: int, rows: list[dict[str, Any]]) -> None:
        self.manifest["round"] = t
        tested = last_rows(self.progress.tables["eval"], t)
        self._call("fedbench_round_finished", round=t, rows=rows, evaluation=tested)
        self.send({"event": "round", "round": t, **score_of(tested, self.manifest["config"])})
        stopping, enough = self.stopping(), t == self.job.until
        if t < self.simulation.rounds and (stopping or enough or self.checkpoints.due()):
            if stopping or enough:
                self._require_unchanged()
            self.progress.seconds = self._seconds()
            self.checkpoints.write(self.progress)
            self._halve(t)
            if stopping:
                raise Stopped(f"interrupted after round {t} of {self.simulation.rounds}; the next run resumes it")

    def _halve(self, t: int) -> None:
        """Raises Halved where the cell is to come no further than round t, with the tables as they are by now."""
        if self.job.until is not None and self.job.until <= t < self.simulation.rounds:
            self._write_tables()
            raise Halved(f"ended after round {t} of {self.simulation.rounds}, as a candidate that may go on")

    def end(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Write the last manifest, and return it."""
        self.manifest = {**self.manifest, **outcome, "seconds": self._seconds()}
        done = outcome["status"] in KEPT
        if done:
            self.manifest.pop("round", None)
        write_manifest(self.folder, self.manifest)
        if done:
            forget(self.folder)
        evaluation = self.progress.tables["eval"] if outcome["status"] == "finished" else []
        self._call("fedbench_cell_finished", evaluation=evaluation)
        self.registry.close()
        return self.manifest

    def _call(self, hook: str, **facts: Any) -> None:
        """Call a hook of the plugins; none of them can spoil a result."""
        self.registry.tell(hook, manifest=self.manifest, folder=str(self.folder), **facts)

    def _seconds(self) -> float:
        """What the cell took, its earlier runs up to the checkpoint included."""
        return round(time.perf_counter() - self.began, 3)


def resolved(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; `fedbench doctor` says more")
    return device
