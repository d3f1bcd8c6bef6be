"""What happens inside a worker process: one cell, from its manifest to its files, whatever goes wrong."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

# Imported before the workers are forked, so that each starts with them in place (see runs/executors/workers.py).
import pandas  # noqa: F401  (pyarrow imports it with its first table)
import pyarrow.parquet  # noqa: F401
import torch
import torch._dynamo  # (its optimizers ask for it with their first step)

from fedbench import machine
from fedbench.cell.checkpoint import Checkpoints, Progress, forget
from fedbench.cell.events import Teller
from fedbench.cell.finished import keep
from fedbench.cell.news import last_rows, news
from fedbench.cell.order import Order, config_of
from fedbench.cell.reasons import Diverged, out_of_memory, place
from fedbench.cell.timing import probe
from fedbench.cell.trial import Trial
from fedbench.cell.turns import Shared, in_turn
from fedbench.cell.watched import Watched
from fedbench.engine.team import Team, together
from fedbench.errors import NotApplicable, UserError, told
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest, write_manifest, write_rows
from fedbench.results.choice import declare
from fedbench.results.claims import Taken, joined
from fedbench.results.columns import ONLY_WITH_ROWS
from fedbench.results.files import cleared, described
from fedbench.results.status import HALVED, KEPT

Send = Callable[[dict[str, Any]], None]


class Stopped(Exception):
    """The cell was asked to end, and can go on from its checkpoint."""


class Halved(Exception):
    """The cell has come as far as it was ordered to, and can go on from its checkpoint."""


class Unsure(Exception):
    """A cell has failed in a process that had computed others; it is computed once more, in one of its own."""


def main(job: str, teller: Teller, onward: Callable[[], str | None] = lambda: None) -> None:
    """The entry point of a worker process: a job is an order as one JSON string, events go back through a pipe.

    onward: says that a cell has ended and that the process could take another, and returns that job, if there is one.
    """
    os.setsid()  # a process group of its own, so that whatever it starts can be ended with it
    torch.set_num_threads(1)
    machine.keep_memory()

    def send(event: dict[str, Any]) -> None:
        try:
            teller.tell(event)
        except OSError:  # the run was killed: the cell stays `running` on disk, and the next run takes it up
            os._exit(1)

    def computed(order: Order, shared: Shared | None) -> str:
        if shared and shared.number:
            send({"event": "ready"})
        end = run(order, send, order.processes, lambda: bool(asked), shared)
        return str(end["status"])

    send({"event": "ready"})
    order, asked = Order.from_json(job), list[int]()
    if order.probe is not None:
        send({"event": "probed", **tried(order)})
    else:
        signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the server of workers blocks it
        in_turn(order, computed, lambda: bool(asked), onward)
    teller.close()


def run(
    order: Order,
    send: Send = lambda event: None,
    processes: int = 1,
    stopping: Callable[[], bool] = lambda: False,
    shared: Shared | None = None,
) -> dict[str, Any]:
    """Compute a cell into its folder, from its checkpoint if it has one, and return its last manifest.

    processes: how many may compute the cell together; more than one only where torch has not used threads yet ·
    stopping: asked after each round; where it says so, the cell ends as `interrupted`, with a checkpoint · shared:
    what it has in common with the cells before and after it in this process. A cell that another run has taken over is
    left to it; one that fails after others in its process stays `running`, for nobody knows whether they are to blame.
    """
    try:
        with joined(order.claim) as check:
            return _ended(_Computation(order, send, stopping, check, shared), processes)
    except (Taken, Unsure) as left:
        return {**order.manifest, "status": "running", "reason": str(left), "seconds": 0.0}


def _ended(cell: _Computation, processes: int) -> dict[str, Any]:
    """The last manifest of a cell, however it ended. Raises Taken, Unsure."""
    try:
        outcome = cell.run(processes)
    except Taken:
        raise
    except Stopped as reason:
        outcome = {"status": "interrupted", "reason": str(reason)}
    except Halved as reason:
        outcome = {"status": HALVED, "reason": str(reason), "files": described(cell.folder)}
    except NotApplicable as reason:
        outcome = {"status": "not_applicable", "reason": str(reason)}
    except UserError as error:
        outcome = {"status": "failed", "reason": f"{error}{cell.blame(error)}"}
    except Diverged as error:
        outcome = {"status": "failed", "reason": f"{error}{cell.blame(error)}", "diverged": True}
    except (Exception, SystemExit) as error:  # one cell's fault must not become another's
        outcome = {
            "status": "failed",
            "reason": f"{'out of memory: ' * out_of_memory(error)}{type(error).__name__}: {error}"
            + place(error, cell.registry.files.values())
            + ("" if out_of_memory(error) else cell.blame(error)),
            "traceback": traceback.format_exc(),
        }
    if outcome["status"] == "failed" and cell.shared and cell.shared.number:
        cell.tell({"event": "unsure", "reason": outcome["reason"]})
        raise Unsure(outcome["reason"])
    return cell.end(outcome)


class _Computation:
    """A cell at work: its manifest, how far it is, and what is told and kept after every round."""

    def __init__(
        self,
        order: Order,
        send: Send,
        stopping: Callable[[], bool],
        check: Callable[[], None],
        shared: Shared | None = None,
    ) -> None:
        """check: raises Taken where the cell is another run's; asked before anything is written."""
        self.order, self.folder, self.shared = order, order.folder, shared
        self.lasting = shared is None  # waiting for a disk takes as long as a small cell
        self.registry = shared.registry if shared else Registry(order.plugins)
        self.tell, self.stopping, self.check = send, stopping, check
        self.manifest = {**order.manifest, "status": "running", "machine": {}, "seconds": 0.0}
        self.manifest["started"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.progress = Progress()
        self.watched: Watched | None = None
        self.began = time.perf_counter()

    def run(self, processes: int) -> dict[str, Any]:
        """All rounds that are left, and the files; how it ended."""
        device = resolved(self.order.device)
        if device == "cuda" and self.order.gpu_fraction:  # what it takes beyond that is its own fault, not others'
            torch.cuda.set_per_process_memory_fraction(self.order.gpu_fraction)
        self.manifest["machine"] = machine.describe(device)
        config, catalogue = self.manifest["config"], self.registry.catalogue
        measures = catalogue.measures(metric["name"] for metric in config["evaluation"]["metrics"])
        told = {"metrics": measures, "method": catalogue.said_of(config["method"]["name"])}
        self.manifest |= {what: said for what, said in told.items() if said}
        declare(measures)
        self._take_up(device)
        try:
            self._compute(device, processes)
        finally:
            self.checkpoints.store.close()
        self._write_tables()
        keep(self.folder, self.trial, lasting=self.lasting)
        return {"status": "finished", "files": described(self.folder)}

    def _compute(self, device: str, processes: int) -> None:
        """All rounds that are left."""
        write_manifest(self.folder, self.manifest)
        self._call("fedbench_cell_started")
        self.trial = trial = self._built(config_of(self.manifest), device)
        if trial.left_out:
            self.manifest["left_out"] = trial.left_out
        if trial.federation.turnout is not None:
            self.manifest["turnout"] = trial.federation.turnout
        progress = self.progress
        self._halve(progress.round)  # one that was killed before it could say that it had come so far

        def work(team: Team) -> None:
            if team.rank == 0:
                trial.run(self._on_round, team, progress.tables["layers"].extend, progress)
            else:
                trial.run(team=team, progress=progress)

        together(min(processes, trial.shares), work)

    def _built(self, config: dict[str, Any], device: str) -> Trial:
        made: dict[str, Any] = {}
        if self.shared:
            source = self.shared.source(config)
            made = {"source": source, "dataset": self.shared.dataset(config, source.image_size)}
        self.watched = watched = Watched(self.registry, config)
        return Trial(config, self.registry, device, store=self.checkpoints.store, watched=watched, **made)

    def blame(self, error: BaseException) -> str:
        """Whose plugin an exception is likely to come from, in words that follow on its own; or ""."""
        return self.watched.blame(error) if self.watched else ""

    def _warned(self) -> None:
        """Tell and keep what was noticed of others' plugins since the last time."""
        if new := self.watched.warnings[len(self.manifest.get("warnings", ())) :] if self.watched else ():
            self.manifest["warnings"] = list(self.watched.warnings) if self.watched else []
            self.tell({"event": "warned", "reasons": list(new)})

    def _write_tables(self) -> None:
        self.check()
        for kind, rows in self.progress.tables.items():
            if rows or kind not in ONLY_WITH_ROWS:
                write_rows(self.folder, kind, rows, lasting=self.lasting)

    def _take_up(self, device: str) -> None:
        """Clear the folder of what a killed run left half written, and go on from the checkpoint."""
        torn = cleared(self.folder, read_manifest(self.folder) or {})
        if self.order.fresh:
            forget(self.folder)
        self.checkpoints = Checkpoints(self.folder, self.manifest["id"], device, self.order.checkpoint_every)
        self.progress, refused = self.checkpoints.latest()
        self.began -= self.progress.seconds
        self.manifest["round"] = self.progress.round
        if torn := [*torn, *refused]:
            self.manifest["torn"] = torn
            self.tell({"event": "torn", "reasons": torn})
        if self.progress.round:
            self.tell({"event": "resumed", "round": self.progress.round})

    def _on_round(self, t: int, rows: list[dict[str, Any]]) -> None:
        self.check()
        self._warned()
        self.manifest["round"] = t
        tested = last_rows(self.progress.tables["eval"], t)
        self._call("fedbench_round_finished", round=t, rows=rows, evaluation=tested)
        told = news(self.trial.ledger.trained_on(rows), tested, self.manifest["config"])
        self.tell({"event": "round", "round": t, **told})
        stopping, enough = self.stopping(), t == self.order.until
        if t < self.trial.rounds and (stopping or enough or self.checkpoints.due()):
            self.progress.seconds = self._seconds()
            self.checkpoints.write(self.progress)
            self._halve(t)
            if stopping:
                raise Stopped(f"interrupted after round {t} of {self.trial.rounds}; the next run goes on")

    def _halve(self, t: int) -> None:
        """Raises Halved where the cell is to come no further than round t, with the tables as they are by now."""
        if self.order.until is not None and self.order.until <= t < self.trial.rounds:
            self._write_tables()
            raise Halved(f"ended after round {t} of {self.trial.rounds}, as a candidate that may go on")

    def end(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Write the last manifest, and return it."""
        self.check()
        self._warned()
        self.manifest = {**self.manifest, **outcome, "seconds": self._seconds()}
        done = outcome["status"] in KEPT
        if done:
            self.manifest.pop("round", None)
        write_manifest(self.folder, self.manifest)
        if done:
            forget(self.folder)
        evaluation = self.progress.tables["eval"] if outcome["status"] == "finished" else []
        self._call("fedbench_cell_finished", evaluation=evaluation)
        return self.manifest

    def _call(self, hook: str, **facts: Any) -> None:
        """Tell the plugins; none of them can spoil a result."""
        self.registry.tell(hook, manifest=self.manifest, folder=str(self.folder), **facts)

    def _seconds(self) -> float:
        """What the cell took, its earlier runs up to the checkpoint included."""
        return round(time.perf_counter() - self.began, 3)


def tried(order: Order) -> dict[str, Any]:
    """The `rates` of a cell by a short probe, or the `reason` why there are none; nothing is written."""
    try:
        return {"rates": probe(config_of(order.manifest), Registry(order.plugins), order.device, **(order.probe or {}))}
    except Exception as error:  # a plugin's; the other cells' times are wanted all the same
        return {"reason": told(error)}


def resolved(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; `fedbench doctor` says more")
    return device
