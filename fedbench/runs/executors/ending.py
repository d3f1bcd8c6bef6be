"""How a cell ended: its own last manifest, or, where its process could not write one, what the run knows of it."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any

from fedbench.cell.strangers import suspicion
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest, write_manifest
from fedbench.results.claims import is_held
from fedbench.results.manifest import CHECKPOINT
from fedbench.runs.executors.workers import Worker
from fedbench.words import memory


def outcome(worker: Worker, timeout: float | None, memory_limit: int | None) -> dict[str, Any]:
    """`status`, `reason` and `seconds` of a worker that has ended, as its manifest now has them. A cell that could not
    finish its round before it was killed, because the run was asked to end, is `interrupted`, and its files stay as
    they are; so do those of a cell that is another run's by now."""
    report, manifest = worker.report(), _written(worker)
    if _is_undone(worker, manifest):
        if worker.asked and not worker.late and not report["memory"]:
            kept = (worker.folder / CHECKPOINT).is_dir()
            after = "the next run goes on from its checkpoint" if kept else "the next run begins it anew"
            reason = f"ended before its round was done; {after}"
            return {"status": "interrupted", "reason": reason, "seconds": round(worker.seconds, 3)}
        manifest |= _end(worker, manifest, report, timeout, memory_limit)
        with suppress(UserError):  # the disk is full, say, which is the reason given
            write_manifest(worker.folder, manifest)
    return {"status": manifest["status"], "reason": manifest.get("reason"), "seconds": manifest.get("seconds")}


def unsure(worker: Worker) -> str | None:
    """Why a worker that has ended, and had computed other cells before, is to compute its last one again in a process
    of its own: nobody knows whether they were to blame. None where it is not, because it ended well or was asked to."""
    if not worker.used or (worker.asked and not worker.late) or not _is_undone(worker, _written(worker)):
        return None
    if worker.late:
        return "it was out of time"
    report = worker.report()
    return worker.unsure or worker.broke.get("reason") or report.get("reason") or died(report["code"] or 0)


def _is_undone(worker: Worker, manifest: dict[str, Any]) -> bool:
    """Whether a cell has no end on disk, and is this run's to give it one."""
    undone = ("running", "interrupted") if worker.late else ("running",)  # at its deadline a cell is asked to end first
    return manifest["status"] in undone and is_held(worker.order.claim)


def _written(worker: Worker) -> dict[str, Any]:
    """The manifest this worker wrote; before it wrote any, that of a cell at work."""
    with suppress(UserError):  # torn by somebody else
        manifest = read_manifest(worker.folder)
        if manifest is not None and manifest != worker.before:
            return manifest
    return {**worker.order.manifest, "status": "running"}


def _end(
    worker: Worker,
    manifest: dict[str, Any],
    report: dict[str, Any],
    timeout: float | None,
    memory_limit: int | None,
) -> dict[str, Any]:
    """What is recorded of a cell whose process died or was ended."""
    code = report["code"] or 0
    facts: dict[str, Any] = {"exit_code": code} if code >= 0 else {"signal": _name(-code)}
    reason = worker.broke.get("reason") or report.get("reason")
    trace = worker.broke.get("traceback") or report["traceback"]
    if report["memory"] and memory_limit:
        reason = f"out of memory: it took {memory(report['memory'])}, and --memory-limit is {memory(memory_limit)}"
    elif worker.late:
        reason = f"not done after {timeout:g} s" if worker.ready and timeout else "its process did not get ready"
    return {
        **facts,
        "status": "timeout" if worker.late else "failed",
        "reason": reason or died(code) + _perhaps(worker, code),
        "traceback": trace,
        "round": max(worker.round, manifest.get("round", 0)),  # of the checkpoint it went on from
        "seconds": round(worker.seconds, 3),
    }


def died(code: int) -> str:
    """The reason of a cell whose process ended before it was done. code: an exit code, or below 0 a signal."""
    if code >= 0:
        return f"the worker process ended with exit code {code} before it was done"
    reason = f"the worker process was ended by {_name(-code)}"
    return f"{reason}; the system does that when memory runs out" if -code == signal.SIGKILL else reason


def _perhaps(worker: Worker, code: int) -> str:
    """Whose plugin may have ended the process; the system does so for reasons of its own."""
    if -code == signal.SIGKILL:
        return ""
    with suppress(Exception):  # a plugin that does not load here
        return suspicion(Registry(worker.order.plugins), worker.order.manifest["config"])
    return ""


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
